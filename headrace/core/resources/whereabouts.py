"""Where the brokers of one cluster can be, so that nobody connects to wherever a Lease says.

    this machine    everybody listens on loopback (`headrace dev`): URLs of loopback
    StatefulSet     the chart's pods: `<cluster>-<id>.<cluster>.<namespace>.svc`, with `.cluster.local` or without
    by hand         brokers that somebody starts on hosts of his own: any host but loopback and link-local ones, where
                    other services of a machine and of clouds listen

A Lease can be written by more than its broker; what its URL names gets requests of brokers, operators, Prometheus and
clients. A broker knows by its own URL which of the three it is in, an operator by where it runs. Pure; one value for
the life of a process. What is refused is a Lease without URL from then on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import ip_address
from typing import assert_never
from urllib.parse import urlsplit

from headrace.core.browsers import is_loopback_name
from headrace.core.resources.lease import BrokerLease
from headrace.core.types import BrokerId

_CLUSTER_DOMAIN = "cluster.local"
"""The usual one; brokers that are advertised by another one count as started by hand."""


class Whereabouts(Enum):
    THIS_MACHINE = "an address of loopback, as this cluster's brokers are on one machine"
    STATEFUL_SET = "the name of its pod"
    BY_HAND = "neither of loopback nor link-local"

    @classmethod
    def of_broker(cls, own: BrokerLease) -> "Whereabouts":
        """As its own Lease says it."""
        host = urlsplit(own.url).hostname or ""
        if is_loopback_name(host):
            return cls.THIS_MACHINE
        return cls.STATEFUL_SET if _is_own_name(host, own) else cls.BY_HAND

    @classmethod
    def of_operator(cls, api_server: str, *, in_pod: bool) -> "Whereabouts | None":
        """None where its place says nothing about theirs: wherever Leases say."""
        if in_pod:
            return cls.STATEFUL_SET
        parts = urlsplit(api_server)
        is_embedded = parts.scheme == "http" and is_loopback_name(parts.hostname or "")
        return cls.THIS_MACHINE if is_embedded else None

    def allow(self, lease: BrokerLease) -> bool:
        """Whether the Lease's URL is one that its broker can have; there may be none."""
        if not lease.url:
            return True
        try:
            parts = urlsplit(lease.url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        plain = not (parts.username or parts.password or parts.query or parts.fragment or parts.path.strip("/"))
        if parts.scheme not in ("http", "https") or not host or port == 0 or not plain:
            return False
        match self:
            case Whereabouts.THIS_MACHINE:
                return is_loopback_name(host)
            case Whereabouts.STATEFUL_SET:
                return _is_own_name(host, lease)
            case Whereabouts.BY_HAND:
                return not is_loopback_name(host) and not _is_link_local(host)
            case _:
                assert_never(self)

    def checked(self, lease: BrokerLease) -> BrokerLease:
        """The same; without URL and key where it cannot be that of its broker."""
        return lease if self.allow(lease) else replace(lease, url="", peer_key="")


@dataclass(slots=True)
class Doubts:
    """Which URLs have been refused and told: each once, and again after another one."""

    whereabouts: Whereabouts
    _told: dict[BrokerId, str] = field(default_factory=dict)

    def believed(self, lease: BrokerLease, warn: Callable[[str], None]) -> BrokerLease:
        """Return the Lease as it counts. `warn` is told of one that is refused, unless it was told that already."""
        refusal = self.refusal(lease)
        if refusal is not None:
            warn(refusal)
        return self.whereabouts.checked(lease)

    def refusal(self, lease: BrokerLease) -> str | None:
        """What to tell of it, if there is anything new."""
        if self.whereabouts.allow(lease):
            self._told.pop(lease.broker, None)
            return None
        if self._told.get(lease.broker) == lease.url:
            return None
        self._told[lease.broker] = lease.url
        return (
            f"Lease {lease.metadata.name} says that broker {lease.broker} is at {lease.url!r}, which is not"
            f" {self.whereabouts.value}: nobody goes there; look who writes Leases"
        )


def _is_own_name(host: str, lease: BrokerLease) -> bool:
    """Of its pod, by the StatefulSet's headless Service, both of which have the cluster's name."""
    own = f"{lease.cluster}-{lease.broker}.{lease.cluster}.{lease.metadata.namespace}.svc"
    return host.rstrip(".") in (own, f"{own}.{_CLUSTER_DOMAIN}")


def _is_link_local(host: str) -> bool:
    try:
        return ip_address(host).is_link_local
    except ValueError:
        return False
