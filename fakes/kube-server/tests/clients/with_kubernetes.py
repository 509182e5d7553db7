"""The Python client `kubernetes` against the API server: python with_kubernetes.py KUBECONFIG DEFINITION."""
import json
import sys

import yaml
from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

config.load_kube_config(sys.argv[1])
core, custom = client.CoreV1Api(), client.CustomObjectsApi()
definitions, leases = client.ApiextensionsV1Api(), client.CoordinationV1Api()
THINGS = {"group": "lab.example.com", "version": "v1", "namespace": "default", "plural": "things"}


def refused(call, status, reason, part=""):
    try:
        call()
    except ApiException as error:
        said = json.loads(error.body)
        assert (error.status, said["kind"], said["reason"]) == (status, "Status", reason), error
        assert part in said["message"], said
        return said
    raise AssertionError(f"expected {status} {reason}")


def thing(name, **spec):
    return {"apiVersion": "lab.example.com/v1", "kind": "Thing", "metadata": {"name": name, "labels": {"n": name}}, "spec": spec}


made = definitions.create_custom_resource_definition(yaml.safe_load(open(sys.argv[2])))
assert {c.type: c.status for c in made.status.conditions}["Established"] == "True", made.status

# Objects of a definition: defaults, selectors, pages, the three patches, the status by itself.
first = custom.create_namespaced_custom_object(body=thing("one", count=1), **THINGS)
assert first["spec"] == {"mode": "a", "count": 1} and first["metadata"]["generation"] == 1, first
for name in ("two", "three"):
    custom.create_namespaced_custom_object(body=thing(name), **THINGS)
found = custom.list_namespaced_custom_object(label_selector="n in (one,two)", **THINGS)
assert [t["metadata"]["name"] for t in found["items"]] == ["one", "two"], found
page, names = custom.list_namespaced_custom_object(limit=2, **THINGS), []
while True:
    names += [t["metadata"]["name"] for t in page["items"]]
    if not page["metadata"].get("continue"):
        break
    page = custom.list_namespaced_custom_object(limit=2, _continue=page["metadata"]["continue"], **THINGS)
assert names == ["one", "three", "two"], names
start = page["metadata"]["resourceVersion"]
merged = custom.patch_namespaced_custom_object(name="one", body={"spec": {"mode": "b"}}, _content_type="application/merge-patch+json", **THINGS)
assert merged["spec"]["mode"] == "b" and merged["metadata"]["generation"] == 2, merged
steps = [{"op": "replace", "path": "/spec/count", "value": 7}]
JSON_PATCH = "application/json-patch+json"
assert custom.patch_namespaced_custom_object(name="one", body=steps, _content_type=JSON_PATCH, **THINGS)["spec"]["count"] == 7
ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
shown = custom.patch_namespaced_custom_object_status(name="one", body=ready, _content_type="application/merge-patch+json", **THINGS)
assert shown["metadata"]["generation"] == 3 and shown["status"] == ready["status"], shown
stale = dict(first, spec={"count": 9})
refused(lambda: custom.replace_namespaced_custom_object(name="one", body=stale, **THINGS), 409, "Conflict", "the object has been modified")
refused(lambda: custom.create_namespaced_custom_object(body=thing("one"), **THINGS), 409, "AlreadyExists")
refused(lambda: custom.get_namespaced_custom_object(name="none", **THINGS), 404, "NotFound")
said = refused(lambda: custom.create_namespaced_custom_object(body=thing("bad", count="x"), **THINGS), 422, "Invalid", "spec.count")
assert said["details"]["causes"][0]["field"] == "spec.count", said
custom.delete_namespaced_custom_object(name="two", **THINGS)

# What a watch from then on tells is all of that, once and in its order.
told = []
for event in watch.Watch().stream(custom.list_namespaced_custom_object, resource_version=start, timeout_seconds=30, **THINGS):
    told.append(f"{event['type']} {event['object']['metadata']['name']}")
    if event["type"] == "DELETED":
        break
assert told == ["MODIFIED one"] * 3 + ["DELETED two"], told

# Kinds that are built in.
secret = client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"password": "p"})
assert core.create_namespaced_secret("default", secret).data == {"password": "cA=="}
core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(generate_name="m-"), data={"a": "1"}))
[map_] = core.list_namespaced_config_map("default", field_selector="metadata.namespace=default").items
assert map_.metadata.name.startswith("m-"), map_.metadata
changed = core.patch_namespaced_config_map(map_.metadata.name, "default", {"data": {"b": "2"}})
assert changed.data == {"a": "1", "b": "2"}, changed.data
refused(lambda: core.create_namespaced_secret("nowhere", secret), 404, "NotFound", "nowhere")
lease = client.V1Lease(metadata=client.V1ObjectMeta(name="l"), spec=client.V1LeaseSpec(holder_identity="x", lease_duration_seconds=15))
lease = leases.create_namespaced_lease("default", lease)
lease.spec.holder_identity = "y"
renewed = leases.replace_namespaced_lease("l", "default", lease)
refused(lambda: leases.replace_namespaced_lease("l", "default", lease), 409, "Conflict")
assert renewed.spec.holder_identity == "y", renewed
assert core.delete_collection_namespaced_secret("default").kind
assert core.list_namespaced_secret("default").items == []
assert client.VersionApi().get_code().git_version.startswith("v1."), "a version"
