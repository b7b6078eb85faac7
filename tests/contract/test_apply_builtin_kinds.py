"""Server-side apply of Kubernetes' own kinds: lists by their keys, and the scale of a StatefulSet."""

from typing import Any

from tests.support.api_objects import pod, secret, service, stateful_set
from tests.support.api_server import Space
from tests.support.applying import apply, owned_by


async def test_should_apply_the_containers_of_a_pod_each_by_its_name(space: Space) -> None:
    path = space.path("pods", "headrace-0")
    obj = pod(containers=[{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}])
    created = await apply(space, path, obj, "team")
    port: dict[str, Any] = {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}
    container = {".": {}, "f:image": {}, "f:name": {}, "f:ports": port}
    assert owned_by(created.body)["team", "Apply", ""] == {"f:spec": {"f:containers": {'k:{"name":"c"}': container}}}
    refused = await apply(space, path, pod(containers=[{"name": "c", "image": "other"}]), "other")
    assert refused.message.endswith('conflict with "team": .spec.containers[name="c"].image')


async def test_should_apply_a_secret_by_its_text(space: Space) -> None:
    path = space.path("secrets", "tls")
    created = await apply(space, path, secret(stringData={"a": "b"}), "team")
    assert (created.body["data"], owned_by(created.body)) == (
        {"a": "Yg=="},
        {("team", "Apply", ""): {"f:stringData": {"f:a": {}}}},
    )
    refused = await apply(space, path, secret(stringData={"a": "c"}), "other")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "team": .stringData.a'
    wrong = await apply(space, path, secret(nonsense=1), "team")
    said = "failed to create typed patch object (/tls; /v1, Kind=Secret): .nonsense: field not declared in schema"
    assert wrong.message == said


async def test_should_apply_a_service(space: Space) -> None:
    path = space.path("services", "web")
    created = await apply(space, path, service(ports=[{"port": 80}], selector={"a": "b"}), "team")
    port: dict[str, Any] = {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}
    assert owned_by(created.body)["team", "Apply", ""] == {"f:spec": {"f:ports": port, "f:selector": {}}}
    refused = await apply(space, path, service(ports=[{"port": 80}], selector={"a": "c"}), "other")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "team": .spec.selector'


async def test_should_own_the_replicas_who_scales(space: Space) -> None:
    path = space.path("statefulsets", "headrace")
    await apply(space, path, stateful_set(replicas=2), "team")
    scaled = await space.api.merge(f"{path}/scale", {"spec": {"replicas": 3}}, {"fieldManager": "scaler"})
    assert scaled.body["spec"] == {"replicas": 3}
    owned = owned_by((await space.api.get(path)).body)
    assert owned["scaler", "Update", "scale"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in owned["team", "Apply", ""]["f:spec"]
    refused = await apply(space, path, stateful_set(replicas=2), "team")
    assert refused.message.endswith('conflict with "scaler" with subresource "scale" using apps/v1: .spec.replicas')
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "headrace"}, "spec": {"replicas": 4}}
    applied = await apply(space, f"{path}/scale", scale, "applier", force="true")
    assert (applied.body["kind"], applied.body["spec"]) == ("Scale", {"replicas": 4})
    assert owned_by((await space.api.get(path)).body)["applier", "Apply", "scale"] == {"f:spec": {"f:replicas": {}}}
