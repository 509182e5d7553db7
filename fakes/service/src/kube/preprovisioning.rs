//! PreprovisioningImage, of the converged flow: metal3 makes one for a host and boots from it, and the service says in it where the
//! discovery image of the host's InfraEnv is.

use std::sync::Arc;

use serde_json::{Value, json};

use super::bare_metal::cools_down;
use super::client::Kind;
use super::conditions::{Condition, merged};
use super::ironic;
use super::object::{INFRA_ENV_LABEL, annotation, is_deleted, key_of, label, namespace, text, texts};
use super::pass::{Pass, Stop, merge, put};

const FINALIZER: &str = "preprovisioningimage.agent-install.openshift.io/ai-deprovision";
/// It is made anew where a backup is taken to.
const NO_BACKUP: &str = "velero.io/exclude-from-backup";
/// On an InfraEnv: its image has metal3's agent in it.
const HAS_AGENT: &str = "infraenv.agent-install.openshift.io/enable-ironic-agent";
/// On a BareMetalHost: metal3 is to start it again.
pub(super) const REBOOT: &str = "reboot.metal3.io";
/// What metal3 can boot, the best first.
const FORMATS: &[&str] = &["iso", "initrd"];
/// Types of its conditions.
pub(super) const CONDITIONS: &[&str] = &["Ready", "Error"];

/// Why there is no image.
#[derive(Debug)]
struct Lacks {
    reason: &'static str,
    /// It will not come by itself.
    is_error: bool,
    message: String,
}

impl Lacks {
    fn new(reason: &'static str, is_error: bool, message: impl Into<String>) -> Self {
        Self { reason, is_error, message: message.into() }
    }
}

pub(super) fn pass(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(image) = pass.get(Kind::PreprovisioningImage, key).filter(|_| pass.converged) else { return Ok(()) };
    let of = label(&image, INFRA_ENV_LABEL);
    // The real controllers do not see one without the label.
    if of.is_empty() {
        return Ok(());
    }
    if is_deleted(&image) {
        return let_go(pass, &image);
    }
    pass.finalizer(&image, FINALIZER)?;
    if label(&image, NO_BACKUP) != "true" {
        return Err(merge(&image, "", &json!({ "metadata": { "labels": { NO_BACKUP: "true" } } })));
    }
    let accepted = texts(&image["spec"]["acceptFormats"]);
    let Some(format) = FORMATS.iter().find(|format| accepted.iter().any(|one| one == *format)) else {
        return lacks(
            pass,
            &image,
            Lacks::new("UnsupportedImageFormat", true, "No format is accepted that there is: iso or initrd"),
        );
    };
    let infra_env = pass.get(Kind::InfraEnv, &format!("{}/{of}", namespace(&image)));
    let Some(infra_env) = infra_env.filter(|infra_env| !is_deleted(infra_env)) else {
        let why = format!("There is no InfraEnv {}/{of}, or it is being deleted", namespace(&image));
        return lacks(pass, &image, Lacks::new("InfraEnvNotAvailable", false, why));
    };
    let (wanted, is) =
        (architecture(&image["spec"]["architecture"]), architecture(&infra_env["spec"]["cpuArchitecture"]));
    if wanted != is {
        let why = format!("An image for {wanted} is wanted, and that of the InfraEnv is for {is}");
        return lacks(pass, &image, Lacks::new("InfraEnvArchMismatch", true, why));
    }
    match ironic::add(pass, &infra_env) {
        // Its image is a new one, and its status will say so.
        Ok(true) => return marked(&infra_env),
        Ok(false) => marked(&infra_env)?,
        Err(why) => {
            let why = format!("Metal3's agent could not be put into the image: {why}");
            lacks(pass, &image, Lacks::new("IronicAgentIgnitionUpdateFailure", true, why))?;
            return Err(Stop::Failed);
        }
    }
    if text(&infra_env["status"]["createdTime"]).is_empty() {
        let why = "The InfraEnv has no image yet";
        return lacks(pass, &image, Lacks::new("WaitingForInfraEnvImageToBeCreated", false, why));
    }
    if let Err(later) = cools_down(pass, &infra_env) {
        let why = "The image of the InfraEnv is too young: it may change again";
        lacks(pass, &image, Lacks::new("WaitingForInfraEnvImageToCoolDown", false, why))?;
        return Err(later);
    }
    give(pass, &image, &infra_env, format)
}

/// Names of an architecture that mean the same.
fn architecture(said: &Value) -> &str {
    match text(said) {
        "amd64" => "x86_64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The InfraEnv says that metal3's agent is in its image.
fn marked(infra_env: &Value) -> Result<(), Stop> {
    if !annotation(infra_env, HAS_AGENT).is_empty() {
        return Ok(());
    }
    let mut changed = infra_env.clone();
    changed["metadata"]["annotations"][HAS_AGENT] = json!("true");
    Err(put(changed))
}

/// Says that there is no image, and why.
fn lacks(pass: &Pass<'_>, image: &Value, why: Lacks) -> Result<(), Stop> {
    let error = if why.is_error { "True" } else { "False" };
    let wanted = [
        Condition::new("Ready", "False", why.reason, why.message.clone()),
        Condition::new("Error", error, why.reason, why.message),
    ];
    // Nothing of what it said before is still so.
    tell(pass, image, json!({ "networkData": image["status"]["networkData"] }), &wanted)
}

/// Writes a status, with conditions that say which generation they are about.
fn tell(pass: &Pass<'_>, image: &Value, mut status: Value, wanted: &[Condition]) -> Result<(), Stop> {
    status["conditions"] = merged(&image["status"]["conditions"], wanted, pass.now, false);
    let generation = &image["metadata"]["generation"];
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if wanted.iter().any(|one| condition["type"] == one.kind) {
            condition["observedGeneration"] = generation.clone();
        }
    }
    pass.status(image, status)
}

/// The BareMetalHost whose image it is.
fn host_of(pass: &Pass<'_>, image: &Value) -> Option<Arc<Value>> {
    let owners = image["metadata"]["ownerReferences"].as_array();
    let owner = owners.into_iter().flatten().rfind(|owner| owner["kind"] == "BareMetalHost")?;
    pass.get(Kind::BareMetalHost, &format!("{}/{}", namespace(image), text(&owner["name"])))
}

/// Says where the image is.
fn give(pass: &Pass<'_>, image: &Value, infra_env: &Value, format: &str) -> Result<(), Stop> {
    let host = host_of(pass, image).ok_or(Stop::Failed)?;
    let parts = &infra_env["status"]["bootArtifacts"];
    let url = if format == "iso" { &infra_env["status"]["isoDownloadURL"] } else { &parts["initrd"] };
    let before = text(&image["status"]["imageUrl"]);
    let runs_another = !before.is_empty() && before != text(url);
    // Before the status, which shows that it runs another one.
    if runs_another && host["status"]["provisioning"]["state"] != "provisioned" && annotation(&host, REBOOT).is_empty()
    {
        let reboot = json!({ "metadata": { "annotations": { REBOOT: "{\"force\": true}" } } });
        return Err(merge(&host, "", &reboot));
    }
    let created = infra_env["status"]["conditions"].as_array().into_iter().flatten();
    let created = created.into_iter().find(|c| c["type"] == "ImageCreated").cloned().unwrap_or_default();
    let is = match text(&created["status"]) {
        "True" => "True",
        "False" => "False",
        _ => "Unknown",
    };
    let (reason, message) = (text(&created["reason"]), text(&created["message"]));
    let error = if reason == "ImageCreationError" { "True" } else { "False" };
    let wanted = [Condition::new("Ready", is, reason, message), Condition::new("Error", error, reason, message)];
    let mut status = json!({
        "networkData": image["status"]["networkData"], "architecture": infra_env["spec"]["cpuArchitecture"],
        "format": format, "imageUrl": url,
    });
    if format == "initrd" {
        status["kernelUrl"] = parts["kernel"].clone();
        status["extraKernelParams"] = json!(kernel_arguments(infra_env));
    }
    tell(pass, image, status, &wanted)
}

/// What the kernel of an image in parts is to know.
fn kernel_arguments(infra_env: &Value) -> String {
    let rootfs = text(&infra_env["status"]["bootArtifacts"]["rootfs"]);
    let own = infra_env["spec"]["kernelArguments"].as_array().into_iter().flatten();
    let added = own.filter(|one| one["operation"] == "append").map(|one| text(&one["value"]).to_owned());
    let first = format!("coreos.live.rootfs_url={rootfs} rd.bootif=0");
    std::iter::once(first).chain(added).collect::<Vec<_>>().join(" ")
}

/// It is deleted: it stays while metal3 needs it to clean its host.
fn let_go(pass: &Pass<'_>, image: &Value) -> Result<(), Stop> {
    if let Some(host) = host_of(pass, image) {
        let cleans = host["spec"]["automatedCleaningMode"] != "disabled";
        let is_clean =
            matches!(text(&host["status"]["provisioning"]["state"]), "powering off before delete" | "deleting");
        if cleans && !(is_deleted(&host) && is_clean) {
            return Err(Stop::Failed);
        }
    }
    pass.drop_finalizer(image, FINALIZER)
}

/// Is that image ready for its host, with the service's image in it? Metal3 may have had one of its own there before.
pub(super) fn is_ready(image: &Value) -> bool {
    let conditions = image["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True" && c["reason"] == "InfraEnvAvailable")
}

/// That of a BareMetalHost: they are called the same.
pub(super) fn of_host(pass: &Pass<'_>, bmh: &Value) -> Option<Arc<Value>> {
    pass.get(Kind::PreprovisioningImage, &key_of(bmh))
}
