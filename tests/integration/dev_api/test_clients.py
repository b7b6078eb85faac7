"""The two Kubernetes clients of the house, unmodified: kopf and `kubernetes.aio`."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kopf
import kubernetes.aio
import pytest

from tests.support.api_objects import topic
from tests.support.api_server import embedded_api
from tests.support.kubeconfig import connect, write_kubeconfig
from tests.support.patience import patient
from tests.support.world import TOPICS

_PATIENCE_S = patient(30)

_KUBERNETES: Any = kubernetes.aio
"""Half of it is annotated, the other half is generated without."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with embedded_api(tmp_path / "data") as running:
        yield write_kubeconfig(tmp_path / "kubeconfig", running.url)


async def test_should_serve_kubernetes_aio(kubeconfig: Path) -> None:
    configuration = _KUBERNETES.client.Configuration()
    await _KUBERNETES.config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    async with _KUBERNETES.client.ApiClient(configuration) as api:
        leases, custom = _KUBERNETES.client.CoordinationV1Api(api), _KUBERNETES.client.CustomObjectsApi(api)
        spec = _KUBERNETES.client.V1LeaseSpec(holder_identity="1", renew_time=datetime.now(UTC))
        meta = _KUBERNETES.client.V1ObjectMeta(name="headrace-broker-0")
        lease = await leases.create_namespaced_lease("default", _KUBERNETES.client.V1Lease(metadata=meta, spec=spec))
        lease.spec.holder_identity = "2"
        renewed = await leases.replace_namespaced_lease("headrace-broker-0", "default", lease)
        assert renewed.spec.holder_identity == "2"
        with pytest.raises(_KUBERNETES.client.ApiException) as conflict:
            await leases.replace_namespaced_lease("headrace-broker-0", "default", lease)
        assert conflict.value.status == 409

        at = ("headrace.io", "v1alpha1", "default", "topics")
        await custom.create_namespaced_custom_object(*at, topic())
        stream = _KUBERNETES.watch.Watch().stream(custom.list_namespaced_custom_object, *at, timeout_seconds=1)
        events = [(event["type"], event["object"]["metadata"]["name"]) async for event in stream]
        assert events == [("ADDED", "flights")]


async def test_should_serve_kopf(kubeconfig: Path) -> None:
    registry, seen = kopf.OperatorRegistry(), asyncio.Queue[str]()

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> Any:
        return kopf.ConnectionInfo(server=server, insecure=True)

    @kopf.on.event("headrace.io", "v1alpha1", "topics", registry=registry)
    def changed(event: Any, name: str, **_: Any) -> None:
        seen.put_nowait(f"{event['type'] or 'LISTED'} {name}")

    async with connect(kubeconfig) as api:
        server = api.access.url
        await api.request("POST", TOPICS, topic("before"))
        stop = asyncio.Event()
        running = asyncio.create_task(
            kopf.operator(registry=registry, standalone=True, clusterwide=True, stop_flag=stop)
        )
        async with asyncio.timeout(_PATIENCE_S):
            assert await seen.get() == "LISTED before"
            await api.request("POST", TOPICS, topic("after"))
            assert await seen.get() == "ADDED after"
            await api.request("DELETE", f"{TOPICS}/after")
            assert await seen.get() == "DELETED after"
        stop.set()
        await running
