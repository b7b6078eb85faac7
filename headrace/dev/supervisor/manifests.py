"""Files given with `-f`: every object in them is created or updated in the API, whether it was there or not.

The files are multi-document YAML (JSON is YAML too), `kind: List` included. Applying is idempotent: an object that is
there gets the file's fields by a merge patch.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headrace.core.resources.metadata import Object
from headrace.dev.supervisor.errors import InvalidManifestError
from headrace.kube.client import KubeClient
from headrace.kube.errors import AlreadyExistsError, ApiError
from headrace.kube.resource import Resource, raw_resource
from headrace.kube.watch import Changed, Listed, Removed, Unreadable, watch

_log = logging.getLogger("headrace.dev")
_SETTLE_TIMEOUT_S = 10
_TOPIC = raw_resource("headrace.io", "v1alpha1", "topics", "Topic")
_KINDS = {
    (resource.api_version, resource.kind): resource
    for resource in (
        _TOPIC,
        raw_resource("headrace.io", "v1alpha1", "consumergroups", "ConsumerGroup"),
        raw_resource("", "v1", "namespaces", "Namespace", namespaced=False),
    )
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file."""

    resource: Resource[Object]
    obj: Object
    where: str
    """The file and the number of the document in it, for messages."""

    @property
    def name(self) -> str:
        return f"{self.resource.kind.lower()}/{self.obj['metadata']['name']}"


def load_manifest(path: Path) -> list[Manifest]:
    """Return the objects in a file, in order. Raises InvalidManifestError."""
    try:
        documents = list(yaml.safe_load_all(path.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidManifestError(f"cannot read the manifest {path}: {_reason(error)}") from error
    return [
        manifest
        for number, document in enumerate(documents, 1)
        for manifest in _manifests(document, f"{path}, document {number}")
    ]


def _reason(error: OSError | UnicodeDecodeError | yaml.YAMLError) -> str:
    """Return the reason in one line: YAML's own messages have several, with a drawing of the place."""
    match error:
        case yaml.MarkedYAMLError(problem_mark=yaml.Mark() as mark):
            return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
        case yaml.reader.ReaderError():
            return f"{error.reason} at character {error.position + 1}"
        case OSError():
            return error.strerror or str(error)
        case _:
            return " ".join(str(error).split())


def _manifests(document: Any, where: str) -> Iterator[Manifest]:
    if document is None:  # There is nothing between two `---`.
        return
    if not isinstance(document, dict):
        raise InvalidManifestError(f"{where} is not a Kubernetes object but a {type(document).__name__}")
    if document.get("kind") == "List":
        items = document.get("items") or []
        if not isinstance(items, list):
            raise InvalidManifestError(f"{where}: items is {type(items).__name__}, must be a list of objects")
        for number, item in enumerate(items, 1):
            yield from _manifests(item, f"{where}, item {number}")
        return
    kind = (str(document.get("apiVersion")), str(document.get("kind")))
    if kind not in _KINDS:
        known = ", ".join(sorted(f"{name} ({version})" for version, name in _KINDS))
        raise InvalidManifestError(f"{where}: kind {kind[1]} of apiVersion {kind[0]} is none that -f applies: {known}")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise InvalidManifestError(f"{where}: metadata.name is missing")
    yield Manifest(_KINDS[kind], document, where)


async def bring_about(client: KubeClient, manifests: Sequence[Manifest]) -> None:
    """Apply all in order, then wait a little until the operator has looked at the topics.

    Raises InvalidManifestError with the API's own message.
    """
    for manifest in manifests:
        try:
            _log.info("%s %s", manifest.name, await _apply(client, manifest))
        except ApiError as error:
            raise InvalidManifestError(f"{manifest.where}: {manifest.name} was refused: {error}") from error
    topics = [manifest for manifest in manifests if manifest.resource == _TOPIC]
    await asyncio.gather(*(_settled(client, topic) for topic in topics))


async def _apply(client: KubeClient, manifest: Manifest) -> str:
    """Return `created` or `configured`."""
    metadata, namespace = dict(manifest.obj["metadata"]), _namespace(client, manifest)
    if namespace is not None:
        metadata["namespace"] = namespace
    obj = {**manifest.obj, "metadata": metadata}
    try:
        await client.create(manifest.resource, obj)
    except AlreadyExistsError:
        await client.patch(manifest.resource, metadata["name"], namespace, obj)
        return "configured"
    return "created"


def _namespace(client: KubeClient, manifest: Manifest) -> str | None:
    if not manifest.resource.namespaced:
        return None
    return str(manifest.obj["metadata"].get("namespace") or client.namespace)


async def _settled(client: KubeClient, topic: Manifest) -> None:
    """Wait until the topic's Ready condition is decided, either way, or the time is over, which does not stop the
    start."""
    name, namespace = topic.obj["metadata"]["name"], _namespace(client, topic)
    try:
        async with asyncio.timeout(_SETTLE_TIMEOUT_S), aclosing(watch(client, _TOPIC, namespace=namespace)) as events:
            async for event in events:
                match event:
                    case Listed(items):
                        pass
                    case Changed(item) | Removed(item):
                        items = (item,)
                    case Unreadable():
                        items = ()
                if any(item["metadata"]["name"] == name and _is_decided(item) for item in items):
                    return
    except TimeoutError:
        _log.warning("the operator has not decided about %s yet; see: kubectl describe %s", topic.name, topic.name)


def _is_decided(obj: Object) -> bool:
    status = obj.get("status") or {}
    ready = [condition for condition in status.get("conditions") or () if condition["type"] == "Ready"]
    return (
        bool(ready)
        and ready[0]["status"] != "Unknown"
        and status.get("observedGeneration") == obj["metadata"].get("generation")
    )
