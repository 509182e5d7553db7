//! Kubeconfigs of API servers that speak plain HTTP: written, and read as far as anybody here needs it.

use serde_json::json;

/// A kubeconfig of an API server at that URL, where everybody is the administrator.
pub fn kubeconfig(server: &str) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "vlab", "preferences": {},
        "clusters": [{ "name": "vlab", "cluster": { "server": server } }],
        "contexts": [{ "name": "vlab", "context": { "cluster": "vlab", "user": "admin", "namespace": "default" } }],
        "users": [{ "name": "admin", "user": {} }],
    });
    serde_yaml::to_string(&config).unwrap_or_default()
}

/// The URL of the API server in a kubeconfig; `None`: it names none.
pub fn server_in(kubeconfig: &str) -> Option<&str> {
    let line = kubeconfig.lines().find_map(|line| line.trim().trim_start_matches("- ").strip_prefix("server:"))?;
    Some(line.trim().trim_matches(['"', '\'']).trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&kubeconfig("http://127.0.0.1:6443/clusters/ns.edge"), Some("http://127.0.0.1:6443/clusters/ns.edge"))]
    #[case("clusters:\n- cluster:\n    server: \"https://api.edge:6443/\"\n", Some("https://api.edge:6443"))]
    #[case("clusters: []\n", None)]
    fn the_server_is_found(#[case] kubeconfig: &str, #[case] server: Option<&str>) {
        assert_eq!(server_in(kubeconfig), server);
    }
}
