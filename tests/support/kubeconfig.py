"""Kubeconfigs in tests: write one for a plain HTTP server, read any one, talk to the API server that it names."""

import base64
import io
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.support.patience import patient

ANSWER_TIMEOUT_S = patient(30)


def write_kubeconfig(path: Path, url: str, namespace: str = "default") -> Path:
    """A kubeconfig for an API server that asks nobody who they are."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(document))
    return path


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach an API server."""

    url: str
    tls: ssl.SSLContext | None


def read_kubeconfig(path: Path) -> Access:
    """The current context's server, with its client certificate where it has one (as files or inline)."""
    document = yaml.safe_load(path.read_text())
    context = _named(document["contexts"], document["current-context"])["context"]
    cluster = _named(document["clusters"], context["cluster"])["cluster"]
    user = _named(document["users"], context["user"]).get("user") or {}
    if not cluster["server"].startswith("https:"):
        return Access(cluster["server"], None)
    tls = ssl.create_default_context(cafile=_file(cluster, "certificate-authority", path))
    certificate, key = (_file(user, name, path) for name in ("client-certificate", "client-key"))
    if certificate:
        tls.load_cert_chain(certificate, key)
    return Access(cluster["server"], tls)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: dict[str, Any]
    text: str
    headers: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def causes(self) -> set[tuple[str, str, str]]:
        """(field, reason, message): a kube-apiserver sends them in any order, and some of them twice."""
        found = self.body.get("details", {}).get("causes", [])
        return {(cause["field"], cause["reason"], cause["message"]) for cause in found}


@dataclass(slots=True)
class Stream:
    """A watch that is open."""

    status: int
    _response: aiohttp.ClientResponse

    async def next(self) -> dict[str, Any] | None:
        """The next event; None at the end of the stream."""
        line = await self._response.content.readline()
        event: dict[str, Any] | None = json.loads(line) if line else None
        return event

    async def rest(self) -> list[dict[str, Any]]:
        """Every event until the stream ends."""
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events


@dataclass(slots=True)
class ApiClient:
    """JSON in, JSON out: no library between the test and the wire."""

    access: Access
    session: aiohttp.ClientSession
    headers: dict[str, str] = field(default_factory=lambda: {"Accept": "application/json"})

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        text_body = body if isinstance(body, bytes) else json.dumps(body).encode()
        data = None if body is None else io.BytesIO(text_body)
        headers = {"Accept": accept, "Content-Type": content_type}
        async with self.session.request(
            method, self.access.url + path, data=data, headers=headers, params=query
        ) as response:
            text = await response.text()
            warnings = tuple(response.headers.getall("Warning", ()))
            return Answer(response.status, _object(text), text, response.headers, warnings)

    async def get(self, path: str, query: Mapping[str, str] | None = None, accept: str = "application/json") -> Answer:
        return await self.request("GET", path, query=query, accept=accept)

    async def merge(self, path: str, patch: object, query: Mapping[str, str] | None = None) -> Answer:
        return await self.request("PATCH", path, patch, content_type="application/merge-patch+json", query=query)

    @asynccontextmanager
    async def watch(self, path: str, accept: str = "application/json", **query: str) -> AsyncIterator[Stream]:
        headers = {"Accept": accept}
        params = {"watch": "true", **query}
        async with self.session.get(self.access.url + path, headers=headers, params=params) as response:
            yield Stream(response.status, response)


@asynccontextmanager
async def connect(kubeconfig: Path) -> AsyncIterator[ApiClient]:
    access = read_kubeconfig(kubeconfig)
    connector = aiohttp.TCPConnector(ssl=access.tls if access.tls is not None else True)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=ANSWER_TIMEOUT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield ApiClient(access, session)


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _file(holder: Mapping[str, Any], name: str, kubeconfig: Path) -> str:
    """The file that `name` names; inline data is written beside the kubeconfig first."""
    if f"{name}-data" not in holder:
        return str(holder.get(name, ""))
    file = kubeconfig.with_name(f"{kubeconfig.name}.{name}")
    file.touch(mode=0o600)
    file.write_bytes(base64.b64decode(holder[f"{name}-data"]))
    return str(file)


def _object(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
