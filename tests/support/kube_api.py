"""An API server for tests of `headrace.kube` and the operator, and a namespace of its own for each of them.

The server is the one that HEADRACE_CONTRACT_KUBECONFIG names, CRDs and all, else the embedded one.
"""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from headrace.core.resources.metadata import Object
from headrace.kube.client import KubeClient
from headrace.kube.errors import NotFoundError
from headrace.kube.resource import Resource, raw_resource
from tests.support.api_server import embedded_api
from tests.support.kubeconfig import write_kubeconfig

NAMESPACES: Resource[Object] = raw_resource("", "v1", "namespaces", "Namespace", namespaced=False)
API_VARIABLE = "HEADRACE_CONTRACT_KUBECONFIG"


@contextmanager
def some_api(folder: Path) -> Iterator[Path]:
    """The kubeconfig of an API server that runs until the block ends."""
    named = os.environ.get(API_VARIABLE)
    if named:
        yield Path(named)
        return
    with embedded_api(folder / "data") as running:
        yield write_kubeconfig(folder / "kubeconfig", running.url)


@asynccontextmanager
async def namespace(client: KubeClient, prefix: str) -> AsyncIterator[str]:
    """A fresh namespace, gone when the block ends (or on its way, where nobody finishes namespaces)."""
    name = f"{prefix}-{uuid4().hex[:10]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        yield name
    finally:
        with suppress(NotFoundError):
            await client.delete(NAMESPACES, name)
