"""An API server for the contract tests: the one that HEADRACE_CONTRACT_KUBECONFIG names, else the embedded one.

Each test has a namespace of its own. The CRDs are applied once. A bare kube-apiserver has no controllers: tests of what
controllers do use the fixture `controllers`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headrace.dev.crds import load_crds
from tests.support.api_server import ApiServer, Space, embedded_api
from tests.support.kubeconfig import ApiClient, connect, write_kubeconfig
from tests.support.patience import patient

_VARIABLE = "HEADRACE_CONTRACT_KUBECONFIG"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_READY_TIMEOUT_S = patient(60)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    named = os.environ.get(_VARIABLE)
    if named:
        asyncio.run(_apply_crds(Path(named)))
        yield ApiServer(Path(named), embedded=False)
        return
    folder = tmp_path_factory.mktemp("contract")
    with embedded_api(folder / "data") as running:
        kubeconfig = write_kubeconfig(folder / "kubeconfig", running.url)
        asyncio.run(_apply_crds(kubeconfig))
        yield ApiServer(kubeconfig, embedded=True)


@pytest.fixture
async def api(api_server: ApiServer) -> AsyncIterator[ApiClient]:
    async with connect(api_server.kubeconfig) as client:
        yield client


@pytest.fixture
async def space(api: ApiClient) -> AsyncIterator[Space]:
    name = f"contract-{uuid4().hex[:10]}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    answer = await api.request("POST", "/api/v1/namespaces", namespace)
    assert answer.status == 201, answer.text
    yield Space(api, name)
    await api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def embedded(api_server: ApiServer) -> None:
    """For tests of what Kubernetes leaves open, and the embedded API promises."""
    if not api_server.embedded:
        pytest.skip("Kubernetes promises nothing here")


@pytest.fixture
def controllers(api_server: ApiServer) -> None:
    """For tests of what controllers do."""
    if not api_server.embedded:
        pytest.skip("a bare kube-apiserver runs no controllers")


async def _apply_crds(kubeconfig: Path) -> None:
    async with connect(kubeconfig) as api:
        for definition in load_crds():
            await api.request("POST", _DEFINITIONS, definition)
            path = f"{_DEFINITIONS}/{definition['metadata']['name']}"
            await _wait_until_served(api, path, definition)


async def _wait_until_served(api: ApiClient, path: str, definition: dict[str, Any]) -> None:
    for _ in range(round(_READY_TIMEOUT_S)):
        if await _is_served(api, path, definition):
            return
        async with api.watch(_DEFINITIONS, timeoutSeconds="1") as changes:
            await changes.rest()
    raise AssertionError(f"{path} is not served within {_READY_TIMEOUT_S:g} s")


async def _is_served(api: ApiClient, path: str, definition: dict[str, Any]) -> bool:
    conditions = (await api.get(path)).body.get("status", {}).get("conditions", [])
    established = any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
    plural = definition["spec"]["names"]["plural"]
    return established and (await api.get(f"/apis/headrace.io/v1alpha1/{plural}")).status == 200
