//! What metal3 does on a hub: it provisions BareMetalHosts. A hub that has it does without this.
//!
//! Where it shares hosts with the service (the converged flow) it makes a PreprovisioningImage for each, and its agent on the host starts
//! the service's, once that is wanted; the host is provisioned when it starts from its disk.

use serde_json::{Value, json};

use super::bare_metal::{DETACHED, PAUSED, STATUS, agent_of};
use super::client::Kind;
use super::converged::METHOD;
use super::object::{annotation, is_deleted, name, namespace, owner, text};
use super::pass::{Pass, Stop, merge, post};
use super::preprovisioning;

/// What is wanted of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    /// It runs an image.
    Image,
    /// The service's agent is to be started.
    Deploy,
    /// It is to be gone.
    Gone,
}

/// When a row of [`STATES`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// There is an image to boot it from.
    HasImage,
    /// The host starts from its disk.
    Installed,
}

/// The states of a host: what is wanted, what it is (empty: anything else), when, and what it becomes. The first row that fits counts;
/// without one it stays what it is.
const STATES: &[(Wanted, &str, When, &str)] = &[
    (Wanted::Image, "", When::Always, "provisioned"),
    (Wanted::Nothing, "provisioned", When::Always, "deprovisioning"),
    (Wanted::Nothing, "provisioning", When::Always, "deprovisioning"),
    (Wanted::Nothing, "", When::Always, "available"),
    (Wanted::Deploy, "provisioning", When::Installed, "provisioned"),
    (Wanted::Deploy, "provisioning", When::Always, "provisioning"),
    (Wanted::Deploy, "provisioned", When::Always, "provisioned"),
    (Wanted::Deploy, "available", When::HasImage, "provisioning"),
    (Wanted::Deploy, "", When::Always, "available"),
    (Wanted::Gone, "provisioned", When::Always, "deprovisioning"),
    (Wanted::Gone, "provisioning", When::Always, "deprovisioning"),
    (Wanted::Gone, "", When::Always, "deleting"),
];

fn next(wanted: Wanted, is: &str, holds: impl Fn(When) -> bool) -> &str {
    let fits = |row: &&(Wanted, &str, When, &str)| row.0 == wanted && (row.1.is_empty() || row.1 == is) && holds(row.2);
    STATES.iter().find(fits).map_or(is, |row| row.3)
}

pub(super) fn pass(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(bmh) = pass.get(Kind::BareMetalHost, key) else { return Ok(()) };
    // Where it shares no hosts it has nothing to take back.
    if !annotation(&bmh, PAUSED).is_empty() || is_deleted(&bmh) && !pass.converged {
        return Ok(());
    }
    // One that comes from another hub is as it was there.
    if bmh["status"]["provisioning"].is_null()
        && let Ok(kept) = serde_json::from_str::<Value>(annotation(&bmh, STATUS))
    {
        return pass.status(&bmh, kept);
    }
    // What it has never looked at has no status that could be changed: the kind wants all of it.
    if !bmh["status"]["provisioning"].is_null() && !annotation(&bmh, DETACHED).is_empty() {
        let mut status = bmh["status"].clone();
        status["operationalStatus"] = json!("detached");
        return pass.status(&bmh, status);
    }
    if pass.converged && !is_deleted(&bmh) {
        image(pass, &bmh)?;
    }
    let url = text(&bmh["spec"]["image"]["url"]);
    let deploys = bmh["spec"]["customDeploy"]["method"] == METHOD && bmh["spec"]["online"] == true;
    let wanted = match (is_deleted(&bmh), url.is_empty(), deploys) {
        (true, _, _) => Wanted::Gone,
        (_, false, _) => Wanted::Image,
        (_, _, true) => Wanted::Deploy,
        _ => Wanted::Nothing,
    };
    let holds = |when: When| match when {
        When::Always => true,
        When::HasImage => preprovisioning::of_host(pass, &bmh).is_some_and(|image| preprovisioning::is_ready(&image)),
        When::Installed => agent_of(pass, &bmh).is_some_and(|agent| starts_from_disk(&agent)),
    };
    let state = next(wanted, text(&bmh["status"]["provisioning"]["state"]), holds);
    let runs = matches!(state, "provisioning" | "provisioned");
    let mut status = bmh["status"].clone();
    status["provisioning"] = json!({ "state": state, "ID": bmh["metadata"]["uid"], "image": bmh["spec"]["image"] });
    if deploys {
        status["provisioning"]["customDeploy"] = bmh["spec"]["customDeploy"].clone();
    }
    status["operationalStatus"] = json!("OK");
    // The kind wants it, though nobody reads it any more.
    status["hardwareProfile"] = json!("unknown");
    status["poweredOn"] = json!(runs && bmh["spec"]["online"] == true);
    status["errorMessage"] = json!("");
    status["errorCount"] = json!(0);
    pass.status(&bmh, status)
}

/// Has the service's agent done its work on the host?
fn starts_from_disk(agent: &Value) -> bool {
    let stage = text(&agent["status"]["progress"]["currentStage"]);
    matches!(stage, "Rebooting" | "Waiting for ignition" | "Configuring" | "Joined" | "Done")
}

/// Makes the image from which a host boots; its labels are the host's.
fn image(pass: &Pass<'_>, bmh: &Value) -> Result<(), Stop> {
    let labels = &bmh["metadata"]["labels"];
    if let Some(image) = preprovisioning::of_host(pass, bmh) {
        let wanted = labels.as_object().into_iter().flatten();
        let differs = wanted.into_iter().any(|(name, value)| image["metadata"]["labels"][name.as_str()] != *value);
        let said = json!({ "metadata": { "labels": labels } });
        return if differs { Err(merge(&image, "", &said)) } else { Ok(()) };
    }
    // Only some controllers can give a host an image as a medium; one that says nothing of it can.
    let address = text(&bmh["spec"]["bmc"]["address"]);
    let formats: &[&str] =
        if address.is_empty() || address.contains("virtualmedia") { &["iso", "initrd"] } else { &["initrd"] };
    let mut owner = owner(bmh, true);
    owner["controller"] = json!(true);
    let made = json!({
        "apiVersion": Kind::PreprovisioningImage.api_version(), "kind": Kind::PreprovisioningImage.name(),
        "metadata": { "name": name(bmh), "namespace": namespace(bmh), "labels": labels, "ownerReferences": [owner] },
        "spec": { "architecture": "x86_64", "acceptFormats": formats },
    });
    Err(post(Kind::PreprovisioningImage, namespace(bmh), made))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::new(Wanted::Nothing, "", &[], "available")]
    #[case::live(Wanted::Image, "available", &[], "provisioned")]
    #[case::without_an_image(Wanted::Deploy, "available", &[], "available")]
    #[case::with_one(Wanted::Deploy, "available", &[When::HasImage], "provisioning")]
    #[case::under_way(Wanted::Deploy, "provisioning", &[When::HasImage], "provisioning")]
    #[case::done(Wanted::Deploy, "provisioning", &[When::HasImage, When::Installed], "provisioned")]
    #[case::stays(Wanted::Deploy, "provisioned", &[], "provisioned")]
    #[case::taken_back(Wanted::Nothing, "provisioned", &[], "deprovisioning")]
    #[case::and_free(Wanted::Nothing, "deprovisioning", &[], "available")]
    #[case::again(Wanted::Deploy, "deprovisioning", &[When::HasImage], "available")]
    #[case::cleaned_before_it_goes(Wanted::Gone, "provisioned", &[], "deprovisioning")]
    #[case::clean(Wanted::Gone, "deprovisioning", &[], "deleting")]
    #[case::never_used(Wanted::Gone, "available", &[], "deleting")]
    fn a_host_goes_from_state_to_state(
        #[case] wanted: Wanted,
        #[case] is: &str,
        #[case] hold: &[When],
        #[case] becomes: &str,
    ) {
        assert_eq!(next(wanted, is, |when| when == When::Always || hold.contains(&when)), becomes);
    }
}
