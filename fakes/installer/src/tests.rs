//! The files as their readers see them: parsed by the `ignition-config` crate, by a YAML parser, by an X.509 parser.

use std::fmt::Write as _;

use ignition_config::Config as AnyConfig;
use rstest::rstest;
use serde_json::Value;
use vlab_api::types::{
    ApiVip, ClusterNetwork, ImageType, InfraEnv, IngressVip, MachineNetwork, Platform, PlatformType, Proxy,
    ServiceNetwork,
};

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const PULL_SECRET: &str = r#"{"auths":{"quay.example.org":{"auth":"dXNlcjpwYXNz"}}}"#;

fn cluster(masters: i64) -> Cluster {
    let network = |cidr: &str| Some(cidr.to_owned());
    Cluster {
        id: Uuid::from_u128(1),
        name: Some("lab".into()),
        base_dns_domain: Some("example.org".into()),
        openshift_version: Some("4.20.1".into()),
        control_plane_count: Some(masters),
        cpu_architecture: Some("x86_64".into()),
        platform: Some(Platform {
            type_: if masters == 1 { PlatformType::None } else { PlatformType::Baremetal },
            external: None,
        }),
        cluster_networks: Some(vec![ClusterNetwork {
            cidr: network("10.128.0.0/14"),
            host_prefix: Some(23),
            ..Default::default()
        }]),
        service_networks: Some(vec![ServiceNetwork { cidr: network("172.30.0.0/16"), ..Default::default() }]),
        machine_networks: Some(vec![MachineNetwork { cidr: network("192.0.2.0/24"), ..Default::default() }]),
        api_vips: (masters > 1).then(|| vec![ApiVip { ip: Some("192.0.2.5".into()), ..Default::default() }]),
        ingress_vips: (masters > 1).then(|| vec![IngressVip { ip: Some("192.0.2.6".into()), ..Default::default() }]),
        ssh_public_key: Some("ssh-ed25519 AAAA lab".into()),
        ..Cluster::default()
    }
}

fn hosts(roles: &[HostRole]) -> Vec<(Host, HostRole, String)> {
    roles
        .iter()
        .enumerate()
        .map(|(i, role)| {
            let host = Host {
                id: Uuid::from_u128(0x100 + i as u128),
                bootstrap: Some(i == 0),
                installation_disk_path: Some("/dev/sda".into()),
                inventory: Some(format!(r#"{{"interfaces":[{{"mac_address":"52:54:00:00:00:0{i}"}}]}}"#).into()),
                ..Host::default()
            };
            (host, *role, format!("{role}-{i}.lab.example.org"))
        })
        .collect()
}

fn make(cluster: &Cluster, hosts: &[(Host, HostRole, String)], seed: u8) -> Result<Vec<Artifact>, ArtifactError> {
    let hosts: Vec<HostInput<'_>> =
        hosts.iter().map(|(host, role, hostname)| HostInput { host, role: *role, hostname }).collect();
    generate(&ArtifactInput {
        cluster,
        hosts: &hosts,
        pull_secret: PULL_SECRET,
        manifests: &[("openshift/50-chrony.yaml".to_owned(), b"kind: MachineConfig\n".to_vec())],
        mirrors: None,
        trusted: &[],
        seed: [seed; 32],
        now: NOW,
    })
}

const HA: [HostRole; 5] = [HostRole::Master, HostRole::Master, HostRole::Master, HostRole::Worker, HostRole::Worker];

fn get<'a>(artifacts: &'a [Artifact], name: &str) -> &'a [u8] {
    &artifacts.iter().find(|a| a.name == name).unwrap_or_else(|| panic!("no {name}")).bytes
}

/// Parses a config and insists that its version knows every member.
fn parsed(bytes: &[u8]) -> Value {
    let (_, warnings) = AnyConfig::parse_slice(bytes).unwrap();
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.is_empty(), "{warnings:?}");
    serde_json::from_slice(bytes).unwrap()
}

fn decode(url: &str) -> String {
    let bytes = if let Some(data) = url.strip_prefix("data:text/plain;charset=utf-8;base64,") {
        BASE64.decode(data).unwrap()
    } else {
        let text = url.strip_prefix("data:,").unwrap_or_else(|| panic!("{url}"));
        let mut out = Vec::new();
        let mut bytes = text.bytes();
        while let Some(b) = bytes.next() {
            if b == b'%' {
                let hex = [bytes.next().unwrap(), bytes.next().unwrap()];
                out.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
            } else {
                out.push(b);
            }
        }
        out
    };
    String::from_utf8(bytes).unwrap()
}

/// Bodies of PEM blocks and long base64 out of sight: a snapshot shows what is where, not the keys.
fn redact(text: &str) -> String {
    let pem = regex::Regex::new(r"(-----BEGIN [A-Z ]+-----\n)[^-]+(-----END)").unwrap();
    let data = regex::Regex::new(r"(-data: )[A-Za-z0-9+/=]{40,}").unwrap();
    let text = pem.replace_all(text, "${1}(redacted)\n${2}");
    data.replace_all(&text, "${1}(redacted)").into_owned()
}

/// What a config says, for people.
fn outline(bytes: &[u8]) -> String {
    let config = parsed(bytes);
    let list = |pointer: &str| config.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut out = format!("version {}\n", config["ignition"]["version"].as_str().unwrap());
    for merge in list("/ignition/config/merge") {
        writeln!(out, "merge {} headers {}", merge["source"], merge["httpHeaders"]).unwrap();
    }
    for ca in list("/ignition/security/tls/certificateAuthorities") {
        writeln!(out, "trust {}", decode(ca["source"].as_str().unwrap())).unwrap();
    }
    for user in list("/passwd/users") {
        writeln!(out, "user {user}").unwrap();
    }
    for file in list("/storage/files") {
        let content = decode(file["contents"]["source"].as_str().unwrap());
        let path = file["path"].as_str().unwrap();
        let path = path.strip_prefix(crate::HOME).map_or(path.to_owned(), |below| format!("~root{below}"));
        writeln!(out, "--- {path} {:04o}", file["mode"].as_i64().unwrap()).unwrap();
        writeln!(out, "{}", content.trim_end()).unwrap();
    }
    for unit in list("/systemd/units") {
        writeln!(out, "--- unit {} enabled={}", unit["name"].as_str().unwrap(), unit["enabled"]).unwrap();
        writeln!(out, "{}", unit["contents"].as_str().unwrap_or("").trim_end()).unwrap();
    }
    redact(&out)
}

#[test]
fn names_of_a_high_availability_cluster() {
    let artifacts = make(&cluster(3), &hosts(&HA), 1).unwrap();
    let names: Vec<&str> = artifacts.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "bootstrap.ign",
            "master.ign",
            "worker.ign",
            "master-00000000-0000-0000-0000-000000000100.ign",
            "master-00000000-0000-0000-0000-000000000101.ign",
            "master-00000000-0000-0000-0000-000000000102.ign",
            "worker-00000000-0000-0000-0000-000000000103.ign",
            "worker-00000000-0000-0000-0000-000000000104.ign",
            "metadata.json",
            "kubeconfig-noingress",
            "kubeadmin-password",
            "install-config.yaml",
        ]
    );
}

#[test]
fn an_arbiter_has_an_ignition_of_its_own() {
    let artifacts = make(&cluster(2), &hosts(&[HostRole::Master, HostRole::Master, HostRole::Arbiter]), 1).unwrap();
    assert!(parsed(get(&artifacts, "arbiter.ign")).to_string().contains(":22623/config/arbiter"));
    let config: Value = serde_yaml::from_slice(get(&artifacts, "install-config.yaml")).unwrap();
    assert_eq!(config["arbiter"]["replicas"], 1);
}

#[test]
fn snapshot_high_availability() {
    let artifacts = make(&cluster(3), &hosts(&HA), 1).unwrap();
    insta::assert_snapshot!("ha_bootstrap", outline(get(&artifacts, "bootstrap.ign")));
    insta::assert_snapshot!("ha_master", outline(get(&artifacts, "master.ign")));
    insta::assert_snapshot!(
        "ha_worker_host",
        outline(get(&artifacts, "worker-00000000-0000-0000-0000-000000000103.ign"))
    );
    insta::assert_snapshot!(
        "ha_install_config",
        String::from_utf8(get(&artifacts, "install-config.yaml").to_vec()).unwrap()
    );
    insta::assert_snapshot!(
        "ha_kubeconfig",
        redact(std::str::from_utf8(get(&artifacts, "kubeconfig-noingress")).unwrap())
    );
}

#[test]
fn snapshot_single_node() {
    let artifacts = make(&cluster(1), &hosts(&[HostRole::Master]), 1).unwrap();
    insta::assert_snapshot!("sno_bootstrap", outline(get(&artifacts, "bootstrap.ign")));
    insta::assert_snapshot!("sno_host", outline(get(&artifacts, "master-00000000-0000-0000-0000-000000000100.ign")));
    insta::assert_snapshot!(
        "sno_install_config",
        String::from_utf8(get(&artifacts, "install-config.yaml").to_vec()).unwrap()
    );
}

#[test]
fn equal_input_equal_bytes_and_the_seed_decides_about_every_secret() {
    let (cluster, hosts) = (cluster(3), hosts(&HA));
    let (a, again, b) =
        (make(&cluster, &hosts, 1).unwrap(), make(&cluster, &hosts, 1).unwrap(), make(&cluster, &hosts, 2).unwrap());
    assert_eq!(a, again);
    for (a, b) in a.iter().zip(&b) {
        assert_eq!(a.name, b.name);
        let independent = a.name == "install-config.yaml";
        assert_eq!(a.bytes == b.bytes, independent, "{}", a.name);
    }
}

#[test]
fn the_password_has_the_installers_form() {
    let artifacts = make(&cluster(3), &hosts(&HA), 1).unwrap();
    let password = String::from_utf8(get(&artifacts, "kubeadmin-password").to_vec()).unwrap();
    let form = regex::Regex::new("^([0-9A-Za-z]{5}-){3}[0-9A-Za-z]{5}$").unwrap();
    assert!(form.is_match(&password), "{password}");
}

#[test]
fn one_cluster_id_everywhere() {
    let artifacts = make(&cluster(3), &hosts(&HA), 1).unwrap();
    let id = openshift_cluster_id(&[1; 32]).to_string();
    let metadata: Value = serde_json::from_slice(get(&artifacts, "metadata.json")).unwrap();
    assert_eq!(metadata["clusterID"], id.as_str());
    assert_eq!(metadata["clusterName"], "lab");
    assert!(metadata["infraID"].as_str().unwrap().starts_with("lab-"));
    assert!(outline(get(&artifacts, "bootstrap.ign")).contains(&format!("clusterID: {id}")));
}

#[test]
fn the_servers_certificates_are_for_the_clusters_names_and_signed_by_what_hosts_trust() {
    let artifacts = make(&cluster(3), &hosts(&HA), 1).unwrap();
    let file = |path: &str| {
        let config = parsed(get(&artifacts, "bootstrap.ign"));
        let file = config["storage"]["files"].as_array().unwrap().iter().find(|f| f["path"] == path).cloned();
        decode(file.unwrap()["contents"]["source"].as_str().unwrap())
    };
    let pointer = parsed(get(&artifacts, "master.ign"));
    let trusted =
        decode(pointer.pointer("/ignition/security/tls/certificateAuthorities/0/source").unwrap().as_str().unwrap());
    assert_eq!(trusted, file("/opt/openshift/tls/root-ca.crt"));
    let (_, root) = x509_parser::pem::parse_x509_pem(trusted.as_bytes()).unwrap();
    let root = root.parse_x509().unwrap();
    for (path, names) in [
        ("machine-config-server", vec!["api-int.lab.example.org"]),
        (
            "kube-apiserver",
            vec!["api.lab.example.org", "api-int.lab.example.org", "kubernetes.default.svc", "localhost"],
        ),
    ] {
        let pem = file(&format!("/opt/openshift/tls/{path}.crt"));
        let (_, cert) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
        let cert = cert.parse_x509().unwrap();
        cert.verify_signature(Some(root.public_key())).unwrap();
        let sans = cert.subject_alternative_name().unwrap().unwrap();
        let found: Vec<&str> = sans
            .value
            .general_names
            .iter()
            .filter_map(|n| match n {
                x509_parser::extensions::GeneralName::DNSName(name) => Some(*name),
                _ => None,
            })
            .collect();
        assert_eq!(found, names);
        assert!(
            sans.value
                .general_names
                .iter()
                .any(|n| matches!(n, x509_parser::extensions::GeneralName::IPAddress(ip) if **ip == [192, 0, 2, 5]))
        );
    }
}

#[test]
fn a_hosts_override_and_pool_reach_its_ignition() {
    let mut hosts = hosts(&[HostRole::Master, HostRole::Master, HostRole::Master, HostRole::Worker]);
    hosts[3].0.machine_config_pool_name = Some("infra".into());
    hosts[3].0.ignition_config_overrides = Some(
        r#"{"ignition":{"version":"3.1.0"},"storage":{"files":[{"path":"/etc/x","mode":384,"contents":{"source":"data:,x"}}]}}"#
            .into(),
    );
    let artifacts = make(&cluster(3), &hosts, 1).unwrap();
    let text = outline(get(&artifacts, "worker-00000000-0000-0000-0000-000000000103.ign"));
    assert!(text.contains(":22623/config/infra\""), "{text}");
    assert!(text.contains("--- /etc/hostname 0644\nworker-3.lab.example.org\n--- /etc/x 0600\nx\n"), "{text}");
}

#[test]
fn install_config_overrides_win() {
    let mut cluster = cluster(3);
    cluster.install_config_overrides = Some(r#"{"fips":true,"networking":{"networkType":"Calico"}}"#.into());
    cluster.http_proxy = Some("http://proxy.example.org:3128".into());
    cluster.hyperthreading = Some("masters".into());
    let artifacts = make(&cluster, &hosts(&HA), 1).unwrap();
    let config: Value = serde_yaml::from_slice(get(&artifacts, "install-config.yaml")).unwrap();
    assert_eq!(config["fips"], true);
    assert_eq!(config["networking"]["networkType"], "Calico");
    assert_eq!(config["networking"]["serviceNetwork"][0], "172.30.0.0/16");
    assert_eq!(config["proxy"]["httpProxy"], "http://proxy.example.org:3128");
    assert_eq!(config["controlPlane"]["hyperthreading"], "Enabled");
    assert_eq!(config["compute"][0]["hyperthreading"], "Disabled");
}

/// A role that was taken back while the cluster is prepared: the real service goes on with a worker's ignition.
#[test]
fn a_host_without_a_role_gets_a_workers_ignition() {
    let cluster = cluster(3);
    let ignition = |role: HostRole| {
        let mut all = hosts(&HA);
        all[4].1 = role;
        let id = all[4].0.id;
        let artifacts = make(&cluster, &all, 1).unwrap();
        get(&artifacts, &format!("{role}-{id}.ign")).to_vec()
    };
    assert_eq!(ignition(HostRole::AutoAssign), ignition(HostRole::Worker));
}

type Spoil = fn(&mut Cluster, &mut Vec<(Host, HostRole, String)>);

#[rstest]
#[case::no_domain(
    (|c, _| c.base_dns_domain = None) as Spoil,
    "cluster 00000000-0000-0000-0000-000000000001 cannot be installed without a base_dns_domain"
)]
#[case::empty_name(
    (|c, _| c.name = Some(String::new())) as Spoil,
    "cluster 00000000-0000-0000-0000-000000000001 cannot be installed without a name"
)]
#[case::role(
    (|_, h| h[1].1 = HostRole::Bootstrap) as Spoil,
    "host 00000000-0000-0000-0000-000000000101: no ignition exists for role bootstrap"
)]
#[case::override_of_host(
    (|_, h| h[2].0.ignition_config_overrides = Some("{}".into())) as Spoil,
    "ignition_config_overrides of host 00000000-0000-0000-0000-000000000102 is not a valid Ignition config"
)]
#[case::override_of_cluster(
    (|c, _| c.install_config_overrides = Some("[]".into())) as Spoil,
    "install_config_overrides: not a JSON object"
)]
fn what_cannot_be_made_is_said(#[case] spoil: Spoil, #[case] message: &str) {
    let (mut cluster, mut hosts) = (cluster(3), hosts(&HA));
    spoil(&mut cluster, &mut hosts);
    let error = make(&cluster, &hosts, 1).unwrap_err().to_string();
    assert!(error.starts_with(message), "{error}");
}

#[test]
fn mirrors_and_certificates_are_in_the_install_config() {
    let text = "[[registry]]\nlocation = \"quay.io/a\"\n[[registry.mirror]]\nlocation = \"mirror.example.org/a\"\n";
    let mirrors = Mirrors::read(text, "of the mirror\n").unwrap().unwrap();
    let of = |version: &str, overrides: Option<&str>| {
        let mut cluster = cluster(3);
        cluster.openshift_version = Some(version.to_owned());
        cluster.install_config_overrides = overrides.map(str::to_owned);
        let input = ArtifactInput {
            cluster: &cluster,
            hosts: &[],
            pull_secret: PULL_SECRET,
            manifests: &[],
            mirrors: Some(&mirrors),
            trusted: &["of an infra-env\n".to_owned()],
            seed: [1; 32],
            now: NOW,
        };
        let facts = ClusterFacts::new(&input).unwrap();
        install_config::render(&input, &facts).unwrap()
    };
    let sources = serde_json::json!([{"source": "quay.io/a", "mirrors": ["mirror.example.org/a"]}]);
    let new = of("4.18.1", None);
    assert_eq!((&new["imageDigestSources"], &new["imageContentSources"]), (&sources, &Value::Null));
    assert_eq!(new["additionalTrustBundle"], "of the mirror\n\nof an infra-env");
    let old = of("4.13.1", Some(r#"{"additionalTrustBundle": "of the user"}"#));
    assert_eq!((&old["imageDigestSources"], &old["imageContentSources"]), (&Value::Null, &sources));
    assert_eq!(old["additionalTrustBundle"], "of the user\nof the mirror\n\nof an infra-env");
}

#[test]
fn mirrors_are_in_the_discovery_image() {
    let mirrors = Mirrors { registries_conf: "registries".into(), ca_bundle: "certificates".into() };
    let infra_env = InfraEnv::default();
    let input = DiscoveryInput { mirrors: Some(&mirrors), ..discovery_of(&infra_env) };
    let ignition = parsed(&discovery_ignition(&input).unwrap());
    let source = |path: &str| {
        let files = ignition["storage"]["files"].as_array().unwrap();
        files.iter().find(|file| file["path"] == path).map(|file| file["contents"]["source"].clone()).unwrap()
    };
    assert_eq!(source("/etc/containers/registries.conf"), "data:text/plain;base64,cmVnaXN0cmllcw==");
    assert_eq!(source("/etc/pki/ca-trust/source/anchors/domain.crt"), "data:text/plain;base64,Y2VydGlmaWNhdGVz");
}

#[test]
fn another_agent_is_in_the_discovery_image_and_ours_waits_for_it() {
    let infra_env = InfraEnv::default();
    let other =
        r#"{"ignition": {"version": "3.2.0"}, "systemd": {"units": [{"name": "other.service", "enabled": true}]}}"#;
    let input = DiscoveryInput { internal_override: Some(other), ..discovery_of(&infra_env) };
    let ignition = parsed(&discovery_ignition(&input).unwrap());
    let enabled = |name: &str| {
        let units = ignition["systemd"]["units"].as_array().unwrap();
        units.iter().find(|unit| unit["name"] == name).map(|unit| unit["enabled"].clone()).unwrap()
    };
    assert_eq!((enabled("other.service"), enabled("agent.service")), (true.into(), false.into()));
}

fn discovery(infra_env: &InfraEnv) -> Result<Vec<u8>, ArtifactError> {
    discovery_ignition(&discovery_of(infra_env))
}

fn discovery_of(infra_env: &InfraEnv) -> DiscoveryInput<'_> {
    DiscoveryInput {
        infra_env,
        pull_secret: PULL_SECRET,
        service_base_url: "http://192.0.2.1:8090",
        agent_image: "quay.example.org/agent:latest",
        insecure: true,
        agent_timeout_start_secs: 600,
        pull_secret_token: None,
        mirrors: None,
        internal_override: None,
        first_nmstate_version: "4.18",
    }
}

#[test]
fn snapshot_discovery() {
    let plain = InfraEnv { id: Uuid::from_u128(7), ..InfraEnv::default() };
    insta::assert_snapshot!("discovery", outline(&discovery(&plain).unwrap()));
    let full = InfraEnv {
        id: Uuid::from_u128(7),
        ssh_authorized_key: Some("ssh-ed25519 AAAA one\nssh-ed25519 BBBB two\n".into()),
        proxy: Some(Proxy {
            http_proxy: Some("http://u:p%40w@proxy.example.org:3128".into()),
            https_proxy: None,
            no_proxy: Some(".example.org".into()),
        }),
        additional_ntp_sources: Some("192.0.2.7, ntp.example.org".into()),
        additional_trust_bundle: Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into()),
        ignition_config_override: Some(
            r#"{"ignition":{"version":"3.1.0"},"systemd":{"units":[{"name":"agent.service","enabled":false}]}}"#.into(),
        ),
        ..InfraEnv::default()
    };
    insta::assert_snapshot!("discovery_with_everything", outline(&discovery(&full).unwrap()));
}

#[test]
fn a_full_image_has_its_static_networks_and_a_minimal_one_has_not() {
    let yaml = "interfaces: [{name: eth0, type: ethernet, state: up}]";
    let config = serde_json::json!([{"network_yaml": yaml, "mac_interface_map": [{"mac_address": "02:00:00:00:00:01", "logical_nic_name": "eth0"}]}]);
    let mut infra_env = InfraEnv { static_network_config: Some(config.to_string()), ..InfraEnv::default() };
    infra_env.type_ = ImageType::MinimalIso;
    let plain = InfraEnv { static_network_config: None, ..infra_env.clone() };
    assert_eq!(discovery(&infra_env).unwrap(), discovery(&plain).unwrap(), "it is in the RAM disk");
    infra_env.type_ = ImageType::FullIso;
    for (version, file) in [("4.17", "eth0.nmconnection"), ("4.18", "ymlFile0.yml")] {
        infra_env.openshift_version = Some(version.to_owned());
        let text = outline(&discovery(&infra_env).unwrap());
        for wanted in [
            &format!("--- /etc/assisted/network/host0/{file} 0600"),
            "--- /etc/assisted/network/host0/mac_interface.ini 0600",
            "--- /usr/local/bin/pre-network-manager-config.sh 0755",
            "--- /usr/local/bin/common_network_script.sh 0755",
            "pre-network-manager-config.service",
        ] {
            assert!(text.contains(wanted), "{version}: {wanted} is missing in\n{text}");
        }
    }
}

#[test]
fn day_2_hosts_ask_the_running_cluster() {
    let plain = Day2Input {
        api_host: "api.lab.example.org",
        endpoint_url: None,
        endpoint_ca: None,
        endpoint_token: None,
        endpoint_headers: &[],
        pool: "worker",
        hostname: None,
        overrides: None,
    };
    assert_eq!(
        outline(&day2_ignition(&plain).unwrap()),
        "version 3.2.0\nmerge \"http://api.lab.example.org:22624/config/worker\" headers null\n"
    );
    let ca = keys::Authority::new(&[1; 32], NOW, "root-ca").unwrap().pair.cert;
    let encoded = BASE64.encode(&ca);
    let own = Day2Input {
        endpoint_url: Some("https://mcs.example.org/config/"),
        endpoint_ca: Some(&encoded),
        endpoint_token: Some("secret"),
        endpoint_headers: &[("X-Lab".to_owned(), "v1".to_owned())],
        pool: "infra",
        hostname: Some("worker-9"),
        ..plain
    };
    assert_eq!(
        outline(&day2_ignition(&own).unwrap()),
        "version 3.2.0\nmerge \"https://mcs.example.org/config/infra\" headers \
         [{\"name\":\"Authorization\",\"value\":\"Bearer secret\"},{\"name\":\"X-Lab\",\"value\":\"v1\"}]\ntrust -----BEGIN CERTIFICATE-----\n(redacted)\n\
         -----END CERTIFICATE-----\n\n--- /etc/hostname 0644\nworker-9\n"
    );
    let bad = Day2Input { endpoint_ca: Some("%%%"), ..plain };
    assert!(matches!(day2_ignition(&bad), Err(ArtifactError::Certificate(_))));
}
