use rstest::rstest;
use serde_json::json;

use super::*;
use crate::profile::builtin;

const CONNECTIONS: &[(&str, &str)] = &[
    (
        "bond0.nmconnection",
        "[connection]\ninterface-name=bond0\ntype=bond\n[ipv4]\naddress0=192.168.126.30/24\nmethod=manual\n\
         route0=0.0.0.0/0,192.168.126.1,0\nroute1=10.9.0.0/16,192.168.126.2,50\nroute0_options=table=254\ndns=192.168.126.1;\n\
         [ipv6]\nmethod=disabled\n",
    ),
    (
        "eno12399np0.nmconnection",
        "[connection]\ninterface-name=eno12399np0\ntype=802-3-ethernet\nmaster=bond0\nslave-type=bond\n",
    ),
    (
        "bond0.404.nmconnection",
        "[connection]\ninterface-name=bond0.404\ntype=vlan\n[vlan]\nid=404\nparent=bond0\n[ipv6]\naddress0=fd00::30/64\nmethod=manual\n",
    ),
    ("eno8303.nmconnection", "[connection]\ninterface-name=eno8303\ntype=802-3-ethernet\n[ipv4]\nmethod=auto\n"),
    (
        "gone.nmconnection",
        "[connection]\ninterface-name=gone\ntype=802-3-ethernet\n[ipv4]\naddress0=10.0.0.1/8\nmethod=manual\n",
    ),
];

fn connections() -> BTreeMap<String, String> {
    CONNECTIONS.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn bonds_and_vlans_are_interfaces_of_their_own() {
    let profile = builtin("dell-poweredge-r650").unwrap().unwrap();
    let leased = HostAddresses::single("192.168.7.7/24".parse().unwrap(), None);
    let (made, addresses) = configured(&profile, 3, &connections(), &leased);
    let inventory = made.instantiate(3, "node", &addresses);
    let seen: Vec<(String, String, Vec<String>)> = inventory
        .interfaces
        .unwrap()
        .into_iter()
        .map(|i| {
            let all = i.ipv4_addresses.into_iter().chain(i.ipv6_addresses).flatten().collect();
            (format!("{} {}", i.name.unwrap(), i.type_.unwrap()), i.mac_address.unwrap(), all)
        })
        .filter(|(.., all): &(_, _, Vec<String>)| !all.is_empty())
        .collect();
    let mac = profile.mac(3, 0).to_string();
    assert_eq!(
        seen,
        [
            ("bond0 bond".to_owned(), mac.clone(), vec!["192.168.126.30/24".to_owned()]),
            ("bond0.404 vlan".to_owned(), mac, vec!["fd00::30/64".to_owned()]),
        ],
        "the third NIC asks DHCP, which has a lease for the first one alone"
    );
    assert_eq!(addresses.gateways().collect::<Vec<_>>(), ["192.168.126.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(addresses.dns, Some(vec!["192.168.126.1".parse().unwrap()]));
    let routes = inventory.routes.unwrap();
    let route = routes.iter().find(|r| r.destination.as_deref() == Some("10.9.0.0")).unwrap();
    assert_eq!(
        (route.interface.as_deref(), route.gateway.as_deref(), route.metric),
        (Some("bond0"), Some("192.168.126.2"), Some(50))
    );
}

fn policy(mac: &str, extra: &str) -> String {
    format!(
        "capture:\n  iface0: interfaces.mac-address == \"{mac}\"\n{extra}desiredState:\n    interfaces:\n    - name: \"{{{{ \
         capture.iface0.interfaces.0.name }}}}\"\n      type: ethernet\n      state: up\n      ipv4: {{enabled: true, dhcp: \
         false, address: [{{ip: 192.168.126.30, prefix-length: 24}}]}}\n"
    )
}

fn image(files: &[(&str, String)]) -> DiscoveryImage {
    let files: Vec<Value> = files
        .iter()
        .map(|(path, text)| {
            let data = base64::engine::general_purpose::STANDARD.encode(text);
            json!({"path": format!("/etc/assisted/network/{path}"), "contents": {"source": format!("data:text/plain;base64,{data}")}})
        })
        .collect();
    DiscoveryImage::from_ignition(json!({"storage": {"files": files}}).to_string().as_bytes()).unwrap()
}

#[rstest]
#[case::ours("52:54:00:00:00:1a", "", "Connections")]
#[case::nobodys("52:54:00:00:00:1b", "", "Nothing")]
#[case::half_of_it("52:54:00:00:00:1a", "  iface1: interfaces.mac-address == \"52:54:00:00:00:1B\"\n", "Connections")]
fn a_policy_is_applied_where_its_mac_is(#[case] mac: &str, #[case] extra: &str, #[case] expected: &str) {
    let image = image(&[
        ("host0/mac_interface.ini", format!("{mac}=eth0")),
        ("host0/ymlFile0.yml", policy(&mac.to_uppercase(), extra)),
    ]);
    let found = image.network_of(&[("enp1s0".to_owned(), "52:54:00:00:00:1a".parse().unwrap())]);
    assert!(format!("{found:?}").starts_with(expected), "{found:?}");
    if let ImageNetwork::Connections(made) = found {
        assert_eq!(made.keys().collect::<Vec<_>>(), ["enp1s0.nmconnection"]);
        assert!(made["enp1s0.nmconnection"].contains("192.168.126.30/24"));
    }
}

#[test]
fn a_policy_that_needs_an_interface_which_is_not_there_fails() {
    let text = policy("52:54:00:00:00:1B", "");
    let image = image(&[
        ("host0/mac_interface.ini", "52:54:00:00:00:1a=eth0\n52:54:00:00:00:1b=eth1".into()),
        ("host0/ymlFile0.yml", text),
    ]);
    let found = image.network_of(&[("enp1s0".to_owned(), "52:54:00:00:00:1a".parse().unwrap())]);
    assert!(matches!(&found, ImageNetwork::Failed(why) if why.contains("capture.iface0")), "{found:?}");
}

#[rstest]
#[case::no_json("", true)]
#[case::no_data(r#"{"storage":{"files":[{"path":"/x","contents":{"source":"http://a/b"}}]}}"#, true)]
#[case::percent(r#"{"storage":{"files":[{"path":"/x","contents":{"source":"data:,a%20b"}}]}}"#, false)]
fn an_ignition_is_read_or_refused(#[case] text: &str, #[case] refused: bool) {
    let read = DiscoveryImage::from_ignition(text.as_bytes());
    assert_eq!(read.is_err(), refused, "{read:?}");
    if let Ok(image) = read {
        assert_eq!(image.files["/x"], b"a b");
    }
}

#[test]
fn a_ram_disk_without_files_is_an_image_and_garbage_is_none() {
    assert_eq!(DiscoveryImage::from_ram_disk(b"").unwrap(), DiscoveryImage::default());
    assert!(DiscoveryImage::from_ram_disk(b"garbage").is_err());
}

#[test]
fn a_small_ram_disk_that_unpacks_to_a_huge_one_is_refused() {
    use std::io::Read as _;
    let mut packed = Vec::new();
    let mut zeroes = std::io::repeat(0).take(LARGEST_RAM_DISK + 1);
    flate2::read::GzEncoder::new(&mut zeroes, flate2::Compression::best()).read_to_end(&mut packed).unwrap();
    assert!(packed.len() < 1 << 20);
    let error = DiscoveryImage::from_ram_disk(&packed).unwrap_err();
    assert_eq!(error.to_string(), "the RAM disk: it is larger than 64 MiB unpacked");
}
