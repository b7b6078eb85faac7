"""The Leases of brokers and of the operator (`coordination.k8s.io/v1`), and the addresses that a broker's may name.

A broker's Lease is named `headrace-broker-<id>`: its address and a heartbeat. It is a failure detector and a directory
of addresses, nothing more: safety comes from epochs. A reader judges by its own monotonic clock since it last saw the
Lease change; the timestamps in it are for people. By the Lease `<cluster>-operator` one of several operators acts; it
does not carry the cluster's label, which is for the Leases of brokers.

    this machine all brokers listen on loopback (`headrace dev`): URLs of loopback
    StatefulSet     the chart's pods: `<cluster>-<id>.<cluster>.<namespace>.svc`, with `.cluster.local` or without
    by hand brokers that people start on other hosts: any host but loopback and link-local ones, where
                    other services of a machine and of clouds listen

A Lease can be written by more than its broker, and its URL gets requests of brokers, operators, Prometheus and
clients. A broker knows by its own URL which of the three it is in, an operator by where it runs (`Whereabouts`, one
value for the life of a process). A Lease with another URL counts as one without a URL.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import ip_address
from typing import Any, assert_never
from urllib.parse import urlsplit

from headrace.core.browsers import is_loopback_name
from headrace.core.limits import LEASE_DURATION_MS, OPERATOR_LEASE_DURATION_MS
from headrace.core.resources.metadata import InvalidResourceError, Metadata, Object
from headrace.core.types import BrokerId, Incarnation, TopicUid

LEASE_REGRESSED_MAX = 1_000
"""The number of topics that a broker names in its Lease because their epochs went back."""


LEASE_PREFIX = "headrace-broker-"
CLUSTER_LABEL = "headrace.io/cluster"
_URL, _ZONE, _DRAINING, _CLEAN, _FULL, _REGRESSED, _PEER_KEY = (
    f"headrace.io/{name}" for name in ("url", "zone", "draining", "clean", "full", "regressed", "peer-key")
)
_OPTIONAL = (_FULL, _REGRESSED, _PEER_KEY)
_CLUSTER_DOMAIN = "cluster.local"
"""The usual domain; brokers that are advertised by another one count as started by hand."""


@dataclass(frozen=True, slots=True)
class BrokerLease:
    metadata: Metadata
    broker: BrokerId
    incarnation: Incarnation
    """The incarnation; 0 where no broker holds it."""
    url: str
    zone: str = ""
    draining: bool = False
    clean: bool = False
    """True where the holder stopped cleanly: everything it held was on disk."""
    renew_time: str = ""
    """The time in RFC 3339 with microseconds, as MicroTime. For people and as a sign of change; never compared with a
    clock."""
    full: bool = False
    """True where there is no room for records on its disk: a leader does not take it into an ISR."""
    regressed: frozenset[TopicUid] = frozenset()
    """The topics whose epochs in the API are below what this broker has seen: no leader is elected for them. Where they
    are too many to be named, the first LEASE_REGRESSED_MAX."""
    peer_key: str = field(default="", repr=False)
    """A random word of its process: a request with it comes from a program that may read Leases, as brokers may, and
    clients may not."""

    @property
    def cluster(self) -> str:
        return self.metadata.labels.get(CLUSTER_LABEL, "")

    def renewed(self, now: str) -> "BrokerLease":
        return replace(self, renew_time=now)

    @classmethod
    def parse(cls, obj: Object) -> "BrokerLease":
        """Parse a Lease. Raises InvalidResourceError for one that is not a broker's."""
        metadata = Metadata.parse(obj)
        broker = broker_of(metadata.name)
        if broker is None:
            raise InvalidResourceError(f"Lease {metadata.name} is not a broker's: its name must be {LEASE_PREFIX}<id>")
        spec = obj.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "0")
        if not holder.isdecimal():
            raise InvalidResourceError(f"Lease {metadata.name}: holderIdentity {holder!r} is not an incarnation")
        notes = metadata.annotations
        return cls(
            metadata=metadata,
            broker=broker,
            incarnation=Incarnation(int(holder)),
            url=notes.get(_URL, ""),
            zone=notes.get(_ZONE, ""),
            draining=notes.get(_DRAINING) == "true",
            clean=notes.get(_CLEAN) == "true",
            renew_time=str(spec.get("renewTime") or ""),
            full=notes.get(_FULL) == "true",
            regressed=frozenset(TopicUid(uid) for uid in notes.get(_REGRESSED, "").split(",") if uid),
            peer_key=notes.get(_PEER_KEY, ""),
        )

    def to_object(self) -> dict[str, Any]:
        metadata = self.metadata.to_object()
        metadata["annotations"] = {
            **{name: note for name, note in self.metadata.annotations.items() if name not in _OPTIONAL},
            _URL: self.url,
            _ZONE: self.zone,
            _DRAINING: str(self.draining).lower(),
            _CLEAN: str(self.clean).lower(),
            **self._more(),
        }
        spec: dict[str, Any] = {
            "holderIdentity": str(self.incarnation),
            "leaseDurationSeconds": LEASE_DURATION_MS // 1000,
        }
        if self.renew_time:
            spec["renewTime"] = self.renew_time
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    def _more(self) -> dict[str, str]:
        """Return the further annotations, where there are any."""
        regressed = ",".join(sorted(self.regressed)[:LEASE_REGRESSED_MAX])
        notes = {_FULL: "true" if self.full else "", _REGRESSED: regressed, _PEER_KEY: self.peer_key}
        return {name: note for name, note in notes.items() if note}


def broker_of(name: str) -> BrokerId | None:
    """Return the broker of a Lease's name; None where it is no broker's."""
    ordinal = name.removeprefix(LEASE_PREFIX)
    return BrokerId(int(ordinal)) if ordinal != name and ordinal.isdecimal() else None


def lease_name(broker: BrokerId) -> str:
    return f"{LEASE_PREFIX}{broker}"


@dataclass(frozen=True, slots=True)
class OperatorLease:
    metadata: Metadata
    holder: str = ""
    """The identity of an operator process; empty where none holds it."""
    renew_time: str = ""
    acquire_time: str = ""
    transitions: int = 0
    """The number of times that it went to another holder."""

    def held_by(self, holder: str, now: str) -> "OperatorLease":
        """Return the Lease as `holder` writes it; `now` is RFC 3339 with microseconds."""
        if holder == self.holder:
            return replace(self, renew_time=now)
        return replace(
            self,
            holder=holder,
            renew_time=now,
            acquire_time=now,
            transitions=self.transitions + bool(self.acquire_time),
        )

    def vacated(self) -> "OperatorLease":
        return replace(self, holder="")

    @classmethod
    def parse(cls, obj: Object) -> "OperatorLease":
        spec = obj.get("spec") or {}
        return cls(
            metadata=Metadata.parse(obj),
            holder=str(spec.get("holderIdentity") or ""),
            renew_time=str(spec.get("renewTime") or ""),
            acquire_time=str(spec.get("acquireTime") or ""),
            transitions=int(spec.get("leaseTransitions") or 0),
        )

    def to_object(self) -> dict[str, Any]:
        spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": OPERATOR_LEASE_DURATION_MS // 1000,
            "acquireTime": self.acquire_time,
            "renewTime": self.renew_time,
            "leaseTransitions": self.transitions,
        }
        metadata = self.metadata.to_object()
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def operator_lease_name(cluster: str) -> str:
    return f"{cluster}-operator"


class Whereabouts(Enum):
    THIS_MACHINE = "an address of loopback, as this cluster's brokers are on one machine"
    STATEFUL_SET = "the name of its pod"
    BY_HAND = "neither of loopback nor link-local"

    @classmethod
    def of_broker(cls, own: BrokerLease) -> "Whereabouts":
        """Return the whereabouts by a broker's own Lease."""
        host = urlsplit(own.url).hostname or ""
        if is_loopback_name(host):
            return cls.THIS_MACHINE
        return cls.STATEFUL_SET if _is_own_name(host, own) else cls.BY_HAND

    @classmethod
    def of_operator(cls, api_server: str, *, in_pod: bool) -> "Whereabouts | None":
        """Return the whereabouts by the operator's place; None where that place decides nothing about the brokers':
        then the Leases do."""
        if in_pod:
            return cls.STATEFUL_SET
        parts = urlsplit(api_server)
        is_embedded = parts.scheme == "http" and is_loopback_name(parts.hostname or "")
        return cls.THIS_MACHINE if is_embedded else None

    def allow(self, lease: BrokerLease) -> bool:
        """Return whether the Lease's URL is one that its broker can have; there may be none."""
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
        """Return the same Lease, without URL and key where the URL cannot be that of its broker."""
        return lease if self.allow(lease) else replace(lease, url="", peer_key="")


@dataclass(slots=True)
class Doubts:
    """The URLs that have been refused and reported: each once, and again after another one."""

    whereabouts: Whereabouts
    _told: dict[BrokerId, str] = field(default_factory=dict)

    def believed(self, lease: BrokerLease, warn: Callable[[str], None]) -> BrokerLease:
        """Return the Lease as it counts. `warn` is called with a refused one, unless that was reported already."""
        refusal = self.refusal(lease)
        if refusal is not None:
            warn(refusal)
        return self.whereabouts.checked(lease)

    def refusal(self, lease: BrokerLease) -> str | None:
        """Return the report about it, if there is anything new."""
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
    """Return whether the host is its pod's, by the StatefulSet's headless Service, both of which have the cluster's
    name."""
    own = f"{lease.cluster}-{lease.broker}.{lease.cluster}.{lease.metadata.namespace}.svc"
    return host.rstrip(".") in (own, f"{own}.{_CLUSTER_DOMAIN}")


def _is_link_local(host: str) -> bool:
    try:
        return ip_address(host).is_link_local
    except ValueError:
        return False
