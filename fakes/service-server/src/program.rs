//! What the programs around the service share: the settings of the environment, the signals that end them, and the whole
//! program of the container image.

use std::net::{Ipv4Addr, SocketAddr};

use tokio_util::sync::CancellationToken;
use vlab_model::settings::{SettingError, Settings};

use crate::hub::HubOptions;
use crate::pg::{PgOptions, PgStore};
use crate::store::MemoryStore;
use crate::{Listen, ServeOptions, serve};
use vlab_service::CoreConfig;

/// What the real service has compiled in and no variable of it sets, as JSON: a run whose time profile scales time gives it to the
/// simulated service with this variable.
pub const CONSTANTS: &str = "VLAB_CONSTANTS";

/// How many times faster than the real ones the controllers wait, where a time profile scales time.
pub const PACE: &str = "VLAB_PACE";

/// The service's settings: those that are given, and on top what this process's environment has under the real service's names, and
/// [`CONSTANTS`].
///
/// # Errors
/// A value that cannot be read.
pub fn settings_of_environment(base: Settings) -> Result<Settings, SettingError> {
    settings_of(base, std::env::vars())
}

fn settings_of(
    mut settings: Settings,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Settings, SettingError> {
    for (name, value) in variables {
        if name == CONSTANTS {
            settings.constants = serde_json::from_str(&value)
                .map_err(|error| SettingError::BadValue { name: CONSTANTS, reason: error.to_string() })?;
        } else if Settings::NAMES.contains(&name.as_str()) || is_stage_timeout(&name) {
            settings.apply_vars([(name.as_str(), value.as_str())])?;
        }
    }
    Ok(settings)
}

/// Names such as `HOST_STAGE_REBOOTING_TIMEOUT` are made from the stages and stand in no list of names.
fn is_stage_timeout(name: &str) -> bool {
    (name.starts_with("HOST_STAGE_") || name.starts_with("FINALIZING_STAGE_")) && name.ends_with("_TIMEOUT")
}

/// The first SIGINT or SIGTERM calls `asked`; a second one ends the process with the exit code `interrupted`.
pub fn stop_on_signals(interrupted: i32, asked: impl FnOnce() + Send + 'static) {
    use tokio::signal::unix::{SignalKind, signal};
    tokio::spawn(async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return;
        };
        // A terminal that is closed. Whoever started us with `nohup` wants us to go on.
        let mut hangup = if ignores_hangup() { None } else { signal(SignalKind::hangup()).ok() };
        let closed = async {
            match &mut hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = closed => {}
        }
        asked();
        // Not a second time of the hang-up: kernel and shell may both send it.
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(interrupted);
    });
}

/// Was this process started with SIGHUP ignored?
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Signal 1 is the lowest bit.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// The connection string of the environment in which the real service finds its database; `None` when `DB_HOST` is not set.
fn database(variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let quoted = |value: String| format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"));
    let mut conninfo = format!("host={}", quoted(variable("DB_HOST")?));
    for (name, word) in [("DB_PORT", "port"), ("DB_USER", "user"), ("DB_PASS", "password"), ("DB_NAME", "dbname")] {
        if let Some(value) = variable(name) {
            conninfo += &format!(" {word}={}", quoted(value));
        }
    }
    Some(conninfo)
}

/// The API server on which the environment wants the controllers to work, as the real service is told it; `None`: they are off.
fn hub(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<HubOptions>, String> {
    if variable("ENABLE_KUBE_API").as_deref() != Some("true") {
        return Ok(None);
    }
    let file = variable("KUBECONFIG").ok_or("ENABLE_KUBE_API is true, and KUBECONFIG names no file")?;
    let text = std::fs::read_to_string(&file).map_err(|error| format!("KUBECONFIG: {file}: {error}"))?;
    let pace = variable(PACE).unwrap_or_else(|| "1".to_owned());
    let pace = pace.parse().ok().filter(|pace: &f64| pace.is_finite() && *pace > 0.0);
    let pace = pace.ok_or_else(|| format!("{PACE}: expected a number above 0"))?;
    let options = HubOptions::of_kubeconfig(&text, pace).map_err(|why| format!("KUBECONFIG: {file}: {why}"))?;
    // A hub has them, or whoever started this does their part.
    Ok(Some(HubOptions { others: false, ..options }))
}

/// The simulated service under the environment of the real one: `DB_HOST` and its kin, `HTTP_LISTEN_PORT` (8090),
/// `SERVICE_BASE_URL`, `ENABLE_KUBE_API` with `KUBECONFIG`, the tunables, and `VLAB_SEED`. It listens on all addresses of its container. Ends with SIGTERM.
///
/// # Errors
/// A setting that cannot be read, a database that cannot be used, a port that is taken.
pub async fn run_under_real_environment() -> Result<(), String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let number = |name: &str, default: u64| match variable(name) {
        Some(text) => text.parse().map_err(|_| format!("{name}: {text:?} is not a number")),
        None => Ok(default),
    };
    let port = u16::try_from(number("HTTP_LISTEN_PORT", 8090)?)
        .map_err(|_| "HTTP_LISTEN_PORT: not a port number".to_owned())?;
    let core = CoreConfig {
        settings: settings_of_environment(Settings::default())
            .map_err(|error| format!("settings in the environment: {error}"))?,
        seed: number("VLAB_SEED", 0)?,
        base_url: variable("SERVICE_BASE_URL").unwrap_or_default(),
        image_service_url: variable("IMAGE_SERVICE_BASE_URL").unwrap_or_default(),
        alteration: None,
    };
    let hub = hub(&variable)?;
    let stop = CancellationToken::new();
    stop_on_signals(130, {
        let stop = stop.clone();
        move || stop.cancel()
    });
    let listen = Listen::Address(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    let (ready, listens) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        if let Ok(address) = listens.await {
            eprintln!("vlab-service: listening on http://{address}");
        }
    });
    let served = match database(&variable) {
        Some(conninfo) => {
            let store = PgStore::connect(PgOptions::new(conninfo)).await;
            let store = store.map_err(|error| format!("the database: {error}"))?;
            let mut options = ServeOptions::new(listen, store, core);
            (options.ready, options.hub) = (Some(ready), hub);
            serve(options, stop).await
        }
        None => {
            eprintln!("vlab-service: no DB_HOST: the state is in memory and gone when the service ends");
            let mut options = ServeOptions::new(listen, MemoryStore::default(), core);
            (options.ready, options.hub) = (Some(ready), hub);
            serve(options, stop).await
        }
    };
    served.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_is_where_the_real_service_would_look() {
        let variables = [("DB_HOST", "10.0.0.2"), ("DB_USER", "admin"), ("DB_PASS", "it's"), ("DB_NAME", "installer")];
        let conninfo =
            database(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()));
        let config: tokio_postgres::Config = conninfo.unwrap().parse().unwrap();
        assert_eq!(config.get_user(), Some("admin"));
        assert_eq!(config.get_password(), Some(&b"it's"[..]));
        assert_eq!(config.get_dbname(), Some("installer"));
        assert_eq!(database(&|_| None), None);
    }

    #[test]
    fn controllers_are_told_their_api_server_as_the_real_ones_are() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig").to_string_lossy().into_owned();
        std::fs::write(&file, crate::hub::kubeconfig("http://127.0.0.1:6443")).unwrap();
        let with = |variables: &[(&str, &str)]| {
            hub(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(with(&[("KUBECONFIG", &file)]).unwrap().is_none());
        let on = ("ENABLE_KUBE_API", "true");
        let told = with(&[on, ("KUBECONFIG", &file), (PACE, "60")]).unwrap().unwrap();
        assert_eq!((told.endpoint.address().port(), told.pace, told.others), (6443, 60.0, false));
        for (variables, why) in [
            (vec![on], "KUBECONFIG names no file"),
            (vec![on, ("KUBECONFIG", "/nonexistent")], "/nonexistent: No such file"),
            (vec![on, ("KUBECONFIG", &file), (PACE, "0")], "VLAB_PACE: expected a number above 0"),
        ] {
            let error = with(&variables).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    /// A time profile scales what is compiled in, too: the service of a run has the settings of virtual time.
    #[test]
    fn a_run_hands_over_all_settings() {
        let wanted = Settings::default().scaled(60.0);
        let mut variables: Vec<(String, String)> =
            wanted.to_vars().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        variables.push((CONSTANTS.to_owned(), wanted.constants.to_json()));
        let of = |variables: Vec<(String, String)>| settings_of(Settings::default(), variables.into_iter());
        assert_eq!(of(variables).unwrap(), wanted);
        let error = of(vec![(CONSTANTS.to_owned(), r#"{"RECLAIM_TIMEOUTS": "1m"}"#.to_owned())]);
        assert!(error.unwrap_err().to_string().contains("RECLAIM_TIMEOUT"));
    }
}
