//! What can be wrong with the arguments of a step: one of them is missing, or it says something else.

use serde_json::Value;
use vlab_api::types::StepType::{self, *};

/// What is wrong with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongArgument {
    /// It is left out; of a list, its last element.
    Missing,
    /// It says something else.
    Other,
}

/// What steps are told: the members of the JSON that is their first argument, of each object where it is a list of objects. `[]` is that
/// list, `#1` the argument in that place.
const ARGUMENTS: &[(StepType, &[&str])] = &[
    (Inventory, &["#0"]),
    (ConnectivityCheck, &["[]", "host_id", "nics"]),
    (FreeNetworkAddresses, &["[]"]),
    (DhcpLeaseAllocate, &["interface", "api_vip_mac", "ingress_vip_mac", "api_vip_lease", "ingress_vip_lease"]),
    (NtpSynchronizer, &["ntp_source"]),
    (DomainResolution, &["domains"]),
    (VerifyVips, &["[]", "vip", "vip_type"]),
    (TangConnectivityCheck, &["tang_servers"]),
    (ApiVipConnectivityCheck, &["url", "ca_certificate", "request_headers", "ignition_endpoint_token"]),
    (InstallationDiskSpeedCheck, &["path", "#1"]),
    (ContainerImageAvailability, &["images", "timeout"]),
    (
        Install,
        &[
            "cluster_id",
            "infra_env_id",
            "host_id",
            "role",
            "boot_device",
            "controller_image",
            "installer_image",
            "control_plane_count",
            "proxy",
            "check_cvo",
            "disks_to_format",
            "must_gather_image",
            "mco_image",
            "openshift_version",
            "installer_args",
            "enable_skip_mco_reboot",
            "notify_num_reboots",
        ],
    ),
    (LogsGather, &["cluster_id", "infra_env_id", "host_id", "bootstrap", "installer_gather", "master_ips"]),
    (DownloadBootArtifacts, &["kernel_url", "rootfs_url", "initrd_url", "host_fs_mount_dir"]),
    (RebootForReclaim, &["host_fs_mount_dir"]),
];

/// All arguments, wrong in each way that there is.
pub(super) fn all() -> impl Iterator<Item = (StepType, &'static str, WrongArgument)> {
    let each = ARGUMENTS.iter().flat_map(|(step, names)| names.iter().map(|name| (*step, *name)));
    each.flat_map(|(step, name)| {
        let other = (name != "[]").then_some((step, name, WrongArgument::Other));
        std::iter::once((step, name, WrongArgument::Missing)).chain(other)
    })
}

/// The arguments with that one wrong. What is not there cannot be.
pub(super) fn alter(mut args: Vec<String>, name: &str, how: WrongArgument) -> Vec<String> {
    if let Some(place) = name.strip_prefix('#').and_then(|n| n.parse::<usize>().ok()) {
        match how {
            _ if place >= args.len() => {}
            WrongArgument::Missing => _ = args.remove(place),
            WrongArgument::Other => args[place] = other_text(&args[place]),
        }
        return args;
    }
    let Some(first) = args.first_mut() else { return args };
    let Ok(mut value) = serde_json::from_str::<Value>(first) else { return args };
    match (&mut value, name) {
        (Value::Array(list), "[]") => _ = list.pop(),
        (Value::Array(list), _) => list.iter_mut().for_each(|object| alter_member(object, name, how)),
        (object, _) => alter_member(object, name, how),
    }
    *first = value.to_string();
    args
}

fn alter_member(object: &mut Value, name: &str, how: WrongArgument) {
    let Some(members) = object.as_object_mut() else { return };
    match how {
        WrongArgument::Missing => _ = members.remove(name),
        WrongArgument::Other => {
            if let Some(value) = members.get_mut(name) {
                *value = other(value);
            }
        }
    }
}

/// Something else of the same kind.
fn other(value: &Value) -> Value {
    match value {
        Value::String(text) => other_text(text).into(),
        Value::Bool(is) => (!is).into(),
        Value::Number(number) => number.as_i64().map_or(Value::Null, |number| (number + 1).into()),
        Value::Array(list) => list.iter().skip(1).cloned().collect(),
        Value::Object(members) => members.iter().skip(1).map(|(name, value)| (name.clone(), value.clone())).collect(),
        Value::Null => Value::Null,
    }
}

/// The same text, but for its last letter or figure: an address stays an address.
fn other_text(text: &str) -> String {
    let Some(at) = text.rfind(|c: char| c.is_ascii_alphanumeric()) else { return format!("{text}0") };
    let other = if text[at..].starts_with('1') { "2" } else { "1" };
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(r#"{"a":"x-7","b":true}"#, "a", WrongArgument::Other, r#"{"a":"x-1","b":true}"#)]
    #[case(r#"{"a":"x-7","b":true}"#, "b", WrongArgument::Other, r#"{"a":"x-7","b":false}"#)]
    #[case(r#"{"a":"x-7","b":true}"#, "b", WrongArgument::Missing, r#"{"a":"x-7"}"#)]
    #[case(r#"{"a":1}"#, "a", WrongArgument::Other, r#"{"a":2}"#)]
    #[case(r#"{"a":["b","c"]}"#, "a", WrongArgument::Other, r#"{"a":["c"]}"#)]
    #[case(r#"{"a":1}"#, "other", WrongArgument::Missing, r#"{"a":1}"#)]
    #[case(r#"[{"a":"b"},{"a":"c"}]"#, "a", WrongArgument::Missing, "[{},{}]")]
    #[case(r#"["10.0.0.0/8","11.0.0.0/8"]"#, "[]", WrongArgument::Missing, r#"["10.0.0.0/8"]"#)]
    fn a_member_is_left_out_or_says_something_else(
        #[case] args: &str,
        #[case] name: &str,
        #[case] how: WrongArgument,
        #[case] altered: &str,
    ) {
        assert_eq!(alter(vec![args.to_owned()], name, how), [altered]);
    }

    #[test]
    fn an_argument_in_its_place_is_left_out_or_says_something_else() {
        let args = || vec!["{}".to_owned(), "480.00".to_owned()];
        assert_eq!(alter(args(), "#1", WrongArgument::Missing), ["{}"]);
        assert_eq!(alter(args(), "#1", WrongArgument::Other), ["{}", "480.01"]);
        assert_eq!(alter(args(), "#2", WrongArgument::Other), args());
    }
}
