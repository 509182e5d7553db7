"""The Python client `kr8s` against the API server: python with_kr8s.py KUBECONFIG DEFINITION."""
import asyncio
import sys

import kr8s
import yaml
from kr8s.asyncio.objects import ConfigMap, CustomResourceDefinition, new_class


async def main():
    api = await kr8s.asyncio.api(kubeconfig=sys.argv[1])
    definition = await CustomResourceDefinition(yaml.safe_load(open(sys.argv[2])), api=api)
    await definition.create()
    await definition.wait("condition=Established", timeout=30)
    Thing = new_class(kind="Thing", version="lab.example.com/v1", namespaced=True, plural="things", asyncio=True)
    meta = {"name": "one", "namespace": "default", "labels": {"n": "1"}}
    thing = await Thing({"metadata": meta, "spec": {"count": 1}}, api=api)
    await thing.create()
    assert thing.spec.mode == "a", thing.raw
    await thing.patch({"spec": {"count": 2}})
    assert (thing.spec.count, thing.metadata.generation) == (2, 2), thing.raw
    await thing.patch({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status")
    await thing.wait("condition=Ready", timeout=30)
    await thing.label(more="yes")
    names = [t.name async for t in api.get("things.lab.example.com", label_selector="more=yes", namespace="default")]
    assert names == ["one"], names
    told = []

    async def listen():
        async for kind, found in api.watch("configmaps", namespace="default"):
            told.append(f"{kind} {found.name}")
            if kind == "DELETED":
                return

    listening = asyncio.create_task(listen())
    map_ = await ConfigMap({"metadata": {"name": "m", "namespace": "default"}, "data": {"a": "1"}}, api=api)
    await map_.create()
    await map_.patch({"data": {"a": "2"}})
    while "ADDED m" not in told:
        await asyncio.sleep(0.01)
    await map_.delete()
    await asyncio.wait_for(listening, 30)
    assert told[0] == "ADDED m" and told[-1] == "DELETED m", told
    try:
        await ConfigMap.get("none", namespace="default", api=api)
        raise AssertionError("it is not there")
    except kr8s.NotFoundError:
        pass
    await thing.delete()
    await thing.wait("delete", timeout=30)
    assert not await thing.exists()
    assert (await api.version())["major"] == "1"


asyncio.run(main())
