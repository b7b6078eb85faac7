"""The settings of a broker process at its start; they never change while the process lives."""

from dataclasses import dataclass, field
from pathlib import Path

from headrace.core.log.disk_quota import DiskLimits
from headrace.core.types import BrokerId

HOUSEKEEPING_INTERVAL_MS_DEFAULT = 60_000
"""The interval at which each open partition is checked for segments that are too old; for other reasons, at once."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    certificate: Path
    key: Path
    authority: Path | None


@dataclass(frozen=True, slots=True)
class TlsSecret:
    """The Secret of type kubernetes.io/tls, in the namespace of the brokers' Leases."""

    name: str


@dataclass(frozen=True, slots=True)
class Settings:
    broker: BrokerId
    data: Path
    cluster: str
    namespace: str
    """The namespace of the brokers' Leases; empty for the namespace of the kubeconfig's context."""
    kubeconfig: str | None
    host: str
    port: int
    """The port; 0 picks a free one."""
    advertised_url: str
    """The URL at which other brokers and clients reach this one; empty for `host:port` of the listener."""
    zone: str
    tls: TlsFiles | TlsSecret | None = None
    memory_bytes: int | None = None
    """The memory that this process may use; None: as much as the machine or the container has."""
    disk_limits: DiskLimits = field(default_factory=DiskLimits)
    housekeeping_interval_ms: int = HOUSEKEEPING_INTERVAL_MS_DEFAULT
    catch_up_rate: int | None = None
    """The rate in bytes a second for followers that are far behind, all together; None: without a limit."""
