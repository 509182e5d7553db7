//! The ignition that the discovery image boots with: it starts the agent and points it at the service.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use vlab_api::types::{ImageType, InfraEnv};

use crate::ignition::{Builder, data_url_percent, merge_override};
use crate::networks::{self, ConnectionMaker};
use crate::{ArtifactError, HOME, Mirrors};

/// What [`discovery_ignition`] needs.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryInput<'a> {
    /// The infra-env; proxy, SSH key, NTP sources, trust bundle, override come from it.
    pub infra_env: &'a InfraEnv,
    /// Its pull secret.
    pub pull_secret: &'a str,
    /// Base URL under which hosts reach the service, without the API's path.
    pub service_base_url: &'a str,
    /// Image (and version) of the agent.
    pub agent_image: &'a str,
    /// The agent does not verify the service's certificate.
    pub insecure: bool,
    /// How long systemd lets the agent's preparation (pulling its image) take, in seconds. `AGENT_TIMEOUT_START`.
    pub agent_timeout_start_secs: u64,
    /// Token for the agent, with authentication on.
    pub pull_secret_token: Option<&'a str>,
    /// Mirrors of registries that only this infra-env has.
    pub mirrors: Option<&'a Mirrors>,
    /// What the service itself puts into it: another agent, which starts ours when it is time.
    pub internal_override: Option<&'a str>,
    /// From this version of OpenShift on hosts make their connections themselves. `MIN_VERSION_FOR_NMSTATE_SERVICE`.
    pub first_nmstate_version: &'a str,
}

/// Lets chrony answer `chronyc` in the agent's container: all that the agent needs of the policy.
const SELINUX_MODULE: &str = "\
module assisted 1.0;
require { type chronyd_t; type spc_t; class unix_dgram_socket sendto; }
allow chronyd_t spc_t : unix_dgram_socket sendto;
";

const SELINUX_UNIT: &str = "\
[Unit]
Description=Load the SELinux module that lets chrony talk to containers
ConditionSecurity=selinux

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/checkmodule -M -m -o %h/assisted.mod %h/assisted.te
ExecStart=/usr/bin/semodule_package -o %h/assisted.pp -m %h/assisted.mod
ExecStart=/usr/sbin/semodule -i %h/assisted.pp

[Install]
WantedBy=multi-user.target
";

const MULTIPATH_UNIT: &str = "\
[Unit]
Description=Multipath devices before the agent looks at the disks
Before=agent.service
ConditionPathExists=/usr/sbin/multipathd

[Service]
Type=simple
ExecStart=/usr/sbin/multipathd -d -s
Restart=on-failure

[Install]
WantedBy=multi-user.target
";

const MULTIPATH_CONF: &str = "\
defaults {
    user_friendly_names yes
    find_multipaths yes
}
";

const ISCSI_UNIT: &str = "\
[Unit]
Description=Log in to iSCSI targets that the firmware booted from
After=network-online.target
Wants=network-online.target
ConditionDirectoryNotEmpty=/sys/firmware/ibft

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/iscsistart -b

[Install]
WantedBy=multi-user.target
";

const OCI_SCRIPT: &str = "\
#!/bin/bash
# On Oracle's cloud the instance's user data is a script for its first start.
set -eu
[ \"$(cat /sys/class/dmi/id/chassis_asset_tag 2>/dev/null)\" = OracleCloud.com ] || exit 0
curl --fail --silent --header 'Authorization: Bearer Oracle' http://169.254.169.254/opc/v2/instance/metadata/user_data \\
    | base64 --decode | bash
";

const OCI_UNIT: &str = "\
[Unit]
Description=Run the user data of an Oracle cloud instance
After=network-online.target
Wants=network-online.target

[Service]
Type=oneshot
ExecStart=/usr/local/bin/oci-eval-user-data.sh

[Install]
WantedBy=multi-user.target
";

const PULL_SCRIPT: &str = "\
#!/bin/bash
# Pulls the agent's image ($1) unless it is there, and keeps trying: the unit's start timeout ends it.
until podman image exists \"$1\" || podman pull --authfile ~root/.docker/config.json \"$1\"; do
    echo \"pulling $1 failed, trying again\" >&2
    sleep 5
done
";

const FIX_SCRIPT: &str = "\
#!/bin/bash
# A power cut while the image ($1) was being written leaves layers that podman lists but cannot run (bug 1964591):
# throw such an image away, so that it is pulled again.
if podman image exists \"$1\" && ! podman run --rm --entrypoint /usr/bin/true \"$1\"; then
    podman rmi --force \"$1\"
fi
exit 0
";

const NTP_SCRIPT: &str = "\
#!/bin/bash
# Adds the time sources that the user named to those of chrony; with --alone, there are no others.
set -eu
if [ \"${1-}\" = --alone ]; then
    shift
    sed --in-place --regexp-extended '/^(server|pool|peer) /d' /etc/chrony.conf
fi
for source in \"$@\"; do
    grep --quiet --fixed-strings \"server $source iburst\" /etc/chrony.conf || echo \"server $source iburst\" >> /etc/chrony.conf
done
systemctl try-restart chronyd.service
";

/// The discovery ignition (version 3.1.0), the infra-env's override merged in.
///
/// # Errors
/// When the override is not an Ignition config, and when a static network cannot be made. Only full images have their static
/// networks here; others have them in the RAM disk.
pub fn discovery_ignition(input: &DiscoveryInput<'_>) -> Result<Vec<u8>, ArtifactError> {
    let infra_env = input.infra_env;
    let static_networks =
        infra_env.static_network_config.as_deref().filter(|c| !c.is_empty() && infra_env.type_ == ImageType::FullIso);
    let set = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
    let proxy = infra_env.proxy.clone().unwrap_or_default();
    let proxy: Vec<(&str, String)> =
        [("http_proxy", proxy.http_proxy), ("https_proxy", proxy.https_proxy), ("no_proxy", proxy.no_proxy)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, set(&value)?)))
            .collect();
    let of = |name: &str| proxy.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
    let bundle = set(&infra_env.additional_trust_bundle);

    let mut ignition = Builder::new("3.1.0")
        .core_user(infra_env.ssh_authorized_key.as_deref())
        .proxied(of("http_proxy"), of("https_proxy"), of("no_proxy"))
        .file("/usr/local/bin/agent-fix-bz1964591", 0o755, FIX_SCRIPT)
        .file("/usr/local/bin/agent-pull-image", 0o755, PULL_SCRIPT)
        .file("/etc/motd", 0o644, MOTD)
        .file_from(&format!("{HOME}/.docker/config.json"), 0o644, data_url_percent(input.pull_secret))
        .file(&format!("{HOME}/assisted.te"), 0o644, SELINUX_MODULE)
        .file("/etc/NetworkManager/conf.d/01-ipv6.conf", 0o644, "[connection]\nipv6.dhcp-iaid=mac\nipv6.dhcp-duid=ll\n")
        .file("/etc/multipath.conf", 0o644, MULTIPATH_CONF)
        .file("/usr/local/bin/oci-eval-user-data.sh", 0o755, OCI_SCRIPT);
    if let Some(bundle) = &bundle {
        ignition = ignition.file("/etc/pki/ca-trust/source/anchors/additional-trust-bundle.crt", 0o644, bundle);
    }
    if let Some(mirrors) = input.mirrors {
        let source = |text: &str| format!("data:text/plain;base64,{}", BASE64.encode(text));
        ignition = ignition
            .file_from("/etc/containers/registries.conf", 0o644, source(&mirrors.registries_conf))
            .file_from("/etc/pki/ca-trust/source/anchors/domain.crt", 0o644, source(&mirrors.ca_bundle));
    }
    if !proxy.is_empty() {
        let lines: String = proxy
            .iter()
            .map(|(name, value)| {
                format!("export {upper}={value}\nexport {name}={value}\n", upper = name.to_uppercase())
            })
            .collect();
        // The mode is 644 in decimal, as the real image has it; what reads the file does not care.
        ignition = ignition.file("/etc/profile.d/proxy.sh", 644, lines);
    }
    ignition = ignition
        .unit("agent.service", input.internal_override.is_none(), agent_unit(input, &proxy, bundle.is_some()))
        .unit("selinux.service", true, SELINUX_UNIT)
        .unit("multipathd.service", true, MULTIPATH_UNIT)
        .unit("iscsistart.service", true, ISCSI_UNIT)
        .unit("oci-eval-user-data.service", true, OCI_UNIT);
    // Those that are added to chrony's own, or stand in their place.
    let own = set(&infra_env.ntp_sources);
    if let Some(sources) = own.clone().or_else(|| set(&infra_env.additional_ntp_sources)) {
        let alone = if own.is_some() { " --alone" } else { "" };
        let sources: Vec<&str> = sources.split(',').map(str::trim).filter(|s| !s.is_empty()).collect();
        ignition = ignition.file("/usr/local/bin/add-ntp-sources.sh", 0o755, NTP_SCRIPT).unit(
            "add-ntp-sources.service",
            true,
            format!(
                "[Unit]\nDescription=Add the user's time sources\nBefore=agent.service\nAfter=network-online.target\n\
                 Wants=network-online.target\n\n[Service]\nType=oneshot\nExecStart=/usr/local/bin/add-ntp-sources.sh{alone} {}\n\n\
                 [Install]\nWantedBy=multi-user.target\n",
                sources.join(" ")
            ),
        );
    }
    if let Some(stored) = static_networks {
        let maker = ConnectionMaker::of(infra_env.openshift_version.as_deref(), input.first_nmstate_version);
        ignition = ignition.unit("pre-network-manager-config.service", true, maker.unit());
        for (path, script) in maker.scripts() {
            ignition = ignition.file(path, 0o755, script);
        }
        for file in networks::files(stored, maker)? {
            ignition = ignition.file(&file.path, 0o600, file.content);
        }
    }
    let mut bytes = ignition.build();
    if let Some(text) = input.internal_override {
        bytes = merge_override(&bytes, text, &format!("internal override of infra-env {}", infra_env.id))?;
    }
    match set(&infra_env.ignition_config_override) {
        Some(text) => merge_override(&bytes, &text, &format!("ignition_config_override of infra-env {}", infra_env.id)),
        None => Ok(bytes),
    }
}

const MOTD: &str = "\
This is a discovery image: the host is waiting to be installed.
The agent's log:  journalctl -u agent.service
";

fn agent_unit(input: &DiscoveryInput<'_>, proxy: &[(&str, String)], trust_bundle: bool) -> String {
    let image = input.agent_image;
    let mut environment = String::new();
    for (name, value) in proxy {
        // A percent sign begins a specifier in units.
        let value = value.replace('%', "%%");
        environment.push_str(&format!("Environment={}={value}\nEnvironment={name}={value}\n", name.to_uppercase()));
    }
    if let Some(token) = input.pull_secret_token {
        environment.push_str(&format!("Environment=PULL_SECRET_TOKEN={token}\n"));
    }
    let ca = if trust_bundle { " --cacert /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem" } else { "" };
    format!(
        "[Unit]\n\
         Description=Agent of the assisted installer\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
         StartLimitInterval=0\n\
         \n\
         [Service]\n\
         Type=simple\n\
         Restart=always\n\
         RestartSec=3\n\
         TimeoutStartSec={timeout}\n\
         {environment}\
         ExecStartPre=/usr/local/bin/agent-fix-bz1964591 {image}\n\
         ExecStartPre=/usr/local/bin/agent-pull-image {image}\n\
         ExecStartPre=podman run --privileged --rm -v /usr/local/bin:/hostbin {image} cp /usr/bin/agent /hostbin\n\
         ExecStart=/usr/local/bin/agent --url {url} --infra-env-id {id} --agent-version {image} --insecure={insecure}{ca}\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        timeout = input.agent_timeout_start_secs,
        url = input.service_base_url,
        id = input.infra_env.id,
        insecure = input.insecure,
    )
}
