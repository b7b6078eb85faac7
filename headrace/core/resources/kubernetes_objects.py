"""Kubernetes' own objects as Headrace reads them: the brokers' StatefulSet, its Pods, Secrets, the bootstrap Service.

The StatefulSet is named as its cluster. The broker of Pod `headrace-2` is broker 2, and its container is named
`broker`. All of them are read and never written, but for the Service: clients find it by the API server's service
proxy, so its name is fixed; `headrace dev` makes it, and so does every other installation. Any ready broker answers
for all behind it. The bytes of a Secret never appear in a message.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.core.resources.metadata import InvalidResourceError, Metadata, Object
from headrace.core.types import BrokerId

POD_SELECTOR = "apps.kubernetes.io/pod-index"
"""A label that every Pod of a StatefulSet has (Kubernetes 1.28), and no other."""
_CONTAINER = "broker"
_ENDED = ("Failed", "Succeeded")
BOOTSTRAP_PORT_NAME: Final = "http"
BOOTSTRAP_PORT: Final = 9701


@dataclass(frozen=True, slots=True)
class BrokerPod:
    stateful_set: str
    broker: BrokerId
    uid: str
    restarts: int
    """The restarts; with `uid`, they identify one life of the broker's process."""
    running: bool
    """False where its container has ended, or has not begun; True where it has no status yet."""

    @classmethod
    def parse(cls, obj: Object) -> "BrokerPod":
        """Parse a Pod. Raises InvalidResourceError for one that is not a StatefulSet's."""
        metadata = Metadata.parse(obj)
        stateful_set, _, ordinal = metadata.name.rpartition("-")
        if not stateful_set or not ordinal.isdecimal():
            raise InvalidResourceError(f"Pod {metadata.name} is not one of a StatefulSet")
        status = obj.get("status") or {}
        container = _container(status)
        return cls(
            stateful_set=stateful_set,
            broker=BrokerId(int(ordinal)),
            uid=metadata.uid,
            restarts=int(container.get("restartCount", 0)),
            running=status.get("phase") not in _ENDED and "running" in (container.get("state") or {"running": {}}),
        )


def _container(status: Object) -> Object:
    """Return the status of the broker's container."""
    found: list[Object] = [each for each in status.get("containerStatuses") or () if each.get("name") == _CONTAINER]
    return found[0] if found else {}


@dataclass(frozen=True, slots=True)
class BrokerSet:
    """The StatefulSet that runs the brokers."""

    first: int
    replicas: int

    @classmethod
    def parse(cls, obj: Object) -> "BrokerSet":
        spec = obj.get("spec") or {}
        return cls(int((spec.get("ordinals") or {}).get("start", 0)), int(spec.get("replicas", 1)))

    @property
    def ordinals(self) -> Sequence[BrokerId]:
        """Return the ordinals of the brokers that there are to be."""
        return [BrokerId(number) for number in range(self.first, self.first + self.replicas)]

    def asks_for(self, broker: BrokerId) -> bool:
        """Return whether there is to be such a broker."""
        return self.first <= broker < self.first + self.replicas


@dataclass(frozen=True, slots=True)
class Secret:
    metadata: Metadata
    data: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def parse(cls, obj: Object) -> "Secret":
        """Parse a Secret. Raises InvalidResourceError where a value is no base64."""
        metadata = Metadata.parse(obj)
        try:
            data = {name: b64decode(text, validate=True) for name, text in (obj.get("data") or {}).items()}
        except ValueError:
            raise InvalidResourceError(f"Secret {metadata.name}: data must be base64") from None
        return cls(metadata, data)


def bootstrap_service(cluster: str) -> str:
    """Return its name, in the brokers' namespace."""
    return f"{cluster}-bootstrap"
