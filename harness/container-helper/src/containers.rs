//! Containers, through `testcontainers`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use testcontainers::bollard::models::{HostConfig, PortBinding};
use testcontainers::bollard::query_parameters::LogsOptionsBuilder;
use testcontainers::core::client::docker_client_instance;
use testcontainers::core::{IntoContainerPort as _, Mount};
use testcontainers::runners::AsyncRunner as _;
use testcontainers::{ContainerAsync, ContainerRequest, CopyTargetOptions, GenericImage, ImageExt as _};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use vlab_container_engine::helper::{ContainerCall, Content, Order};

/// How long the engine may take to make and start one container.
const START: Duration = Duration::from_secs(60);

/// The containers that were started here.
#[derive(Default)]
pub(crate) struct Containers {
    started: Mutex<BTreeMap<String, Started>>,
}

struct Started {
    container: ContainerAsync<GenericImage>,
    /// Copies its log until it has ended.
    log: Option<JoinHandle<()>>,
}

impl Containers {
    /// Does what was asked for.
    pub(crate) async fn carry_out(&self, call: ContainerCall) -> Result<(), String> {
        match call {
            ContainerCall::Pull { image } => generic(&image).pull_image().await.map(drop).map_err(|e| root_cause(&e)),
            ContainerCall::Start(order) => self.start(*order).await,
            ContainerCall::LogEnded { name } => {
                let log = self.started.lock().await.get_mut(&name).and_then(|started| started.log.take());
                if let Some(log) = log {
                    let _ = log.await;
                }
                Ok(())
            }
            ContainerCall::Stop { name, grace } => {
                let grace = i32::try_from(grace).unwrap_or(i32::MAX);
                // Taken out, so that another one can be stopped at the same time.
                let Some(started) = self.started.lock().await.remove(&name) else { return Err(unknown(&name)) };
                let stopped = started.container.stop_with_timeout(Some(grace)).await;
                self.started.lock().await.insert(name, started);
                stopped.map_err(|e| root_cause(&e))
            }
            ContainerCall::Remove { name } => {
                let Some(started) = self.started.lock().await.remove(&name) else { return Err(unknown(&name)) };
                started.container.rm().await.map_err(|e| root_cause(&e))
            }
        }
    }

    async fn start(&self, order: Order) -> Result<(), String> {
        let (name, log_file) = (order.name.clone(), order.log_file.clone());
        let container = request(order)?.start().await.map_err(|e| root_cause(&e))?;
        let log = follow(container.id(), &log_file).await;
        self.started.lock().await.insert(name, Started { container, log });
        Ok(())
    }
}

fn unknown(name: &str) -> String {
    format!("the container {name} was not started here")
}

fn request(order: Order) -> Result<ContainerRequest<GenericImage>, String> {
    let mut request = generic(&order.image);
    for (name, value) in order.env {
        request = request.with_env_var(name, value);
    }
    if !order.args.is_empty() {
        request = request.with_cmd(order.args);
    }
    for file in order.files {
        let bytes = match file.content {
            Content::Text(text) => text.into_bytes(),
            Content::Of(path) => std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?,
        };
        request = request.with_copy_to(CopyTargetOptions::new(file.path).with_mode(file.mode), bytes);
    }
    for (name, limit) in order.limits {
        request = request.with_ulimit(&name, limit, Some(limit));
    }
    if let Some((volume, place)) = order.volume {
        request = request.with_mount(Mount::volume_mount(volume, place));
    }
    let (port, host_port, scratch) = (order.port, order.host_port, order.scratch);
    Ok(request
        .with_container_name(&order.name)
        .with_network(&order.network)
        .with_labels(order.labels)
        .with_startup_timeout(START)
        // Also for an image that does not say that it listens there; the address follows below.
        .with_mapped_port(host_port.unwrap_or(0), port.tcp())
        .with_host_config_modifier(move |config: &mut HostConfig| {
            // 127.0.0.1 only, and only this port, whatever else the image exposes.
            config.publish_all_ports = Some(false);
            let binding = PortBinding {
                host_ip: Some("127.0.0.1".to_owned()),
                host_port: Some(host_port.unwrap_or(0).to_string()),
            };
            config.port_bindings = Some([(format!("{port}/tcp"), Some(vec![binding]))].into());
            if let Some(place) = &scratch {
                config.tmpfs = Some([(place.clone(), "rw,exec,mode=1777".to_owned())].into());
            }
        }))
}

fn generic(image: &str) -> ContainerRequest<GenericImage> {
    let (name, tag) = split_name(image);
    GenericImage::new(name, tag).into()
}

/// Name and tag. A digest is cut at its own colon, which gives the same name when both are put together again.
fn split_name(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

/// The innermost cause says it best; the outer ones only say that there is one.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    let (outer, inner) = (error.to_string(), inner.to_string());
    if outer.contains(&inner) || inner.is_empty() { outer } else { format!("{outer}: {inner}") }
}

/// Copies what a container writes into a file until it has ended, both of its outputs in the order in which it wrote.
async fn follow(id: &str, log_file: &Path) -> Option<JoinHandle<()>> {
    let path = log_file.to_owned();
    // The readers that `testcontainers` has are one for each output; which line came first would be lost.
    let client = docker_client_instance().await.ok()?;
    let options = LogsOptionsBuilder::new().follow(true).stdout(true).stderr(true).build();
    let mut stream = client.logs(id, Some(options));
    Some(tokio::spawn(async move {
        let Ok(mut file) = OpenOptions::new().append(true).create(true).open(&path) else { return };
        while let Some(Ok(output)) = stream.next().await {
            // A full disk is told by what else the run writes.
            let _ = file.write_all(&output.into_bytes());
        }
    }))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("postgres", ("postgres", "latest"))]
    #[case("postgres:16", ("postgres", "16"))]
    #[case("localhost:5000/x/y", ("localhost:5000/x/y", "latest"))]
    #[case("localhost:5000/x/y:z", ("localhost:5000/x/y", "z"))]
    #[case("quay.io/a/b@sha256:12ab", ("quay.io/a/b@sha256", "12ab"))]
    fn names_of_images_are_taken_apart(#[case] image: &str, #[case] expected: (&str, &str)) {
        assert_eq!(split_name(image), expected);
    }
}
