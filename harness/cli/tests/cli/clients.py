"""The generated Python client of the real service against the simulated one: what it reads back must be what it wrote."""
import sys

import assisted_service_client as api

url, pull_secret = sys.argv[1], open(sys.argv[2]).read()
configuration = api.Configuration()
configuration.host = url + "/api/assisted-install"
client = api.ApiClient(configuration=configuration)
installer, versions, manifests, events = (
    api.InstallerApi(api_client=client),
    api.VersionsApi(api_client=client),
    api.ManifestsApi(api_client=client),
    api.EventsApi(api_client=client),
)

known = versions.v2_list_supported_openshift_versions()
assert "4.22.9" in known and known["4.22.9"]["default"], sorted(known)
assert versions.v2_list_component_versions().versions

cluster = installer.v2_register_cluster(
    new_cluster_params=api.ClusterCreateParams(
        name="generated", openshift_version="4.22", pull_secret=pull_secret, base_dns_domain="lab.example"
    )
)
assert (cluster.name, cluster.status) == ("generated", "insufficient"), cluster
same = installer.v2_get_cluster(cluster_id=cluster.id)
assert same.id == cluster.id and same.openshift_version == "4.22.9", same.openshift_version
changed = installer.v2_update_cluster(cluster_id=cluster.id, cluster_update_params=api.V2ClusterUpdateParams(name="renamed"))
assert changed.name == "renamed", changed.name
assert [c["id"] for c in installer.v2_list_clusters()] == [cluster.id]

env = installer.register_infra_env(
    infraenv_create_params=api.InfraEnvCreateParams(
        name="env", cluster_id=cluster.id, pull_secret=pull_secret, openshift_version="4.22", image_type="full-iso"
    )
)
assert installer.get_infra_env(infra_env_id=env.id).cluster_id == cluster.id
assert [e["id"] for e in installer.list_infra_envs()] == [env.id]
assert installer.v2_list_hosts(infra_env_id=env.id) == []

manifest = manifests.v2_create_cluster_manifest(
    cluster_id=cluster.id,
    create_manifest_params=api.CreateManifestParams(folder="manifests", file_name="x.yaml", content="YTogMQo="),
)
assert manifest.file_name == "x.yaml"
assert [m["file_name"] for m in manifests.v2_list_cluster_manifests(cluster_id=cluster.id)] == ["x.yaml"]
assert any("registered cluster" in e["message"] for e in events.v2_list_events(cluster_id=cluster.id))

try:
    installer.v2_get_cluster(cluster_id="00000000-0000-4000-8000-000000000000")
    raise SystemExit("a cluster that is not there was found")
except api.rest.ApiException as error:
    assert error.status == 404, error

installer.deregister_infra_env(infra_env_id=env.id)
installer.v2_deregister_cluster(cluster_id=cluster.id)
assert installer.v2_list_clusters() == []
print("the generated client is content")
