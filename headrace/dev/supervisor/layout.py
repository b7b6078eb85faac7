"""Where `headrace dev` keeps its things: the home with the running instance's state, the data directory, the ports.

The home (`$HEADRACE_HOME`, else `~/.headrace`) belongs to a user and has at most one running `headrace dev`; the data
directory holds everything that survives a restart, and the logs. Ports follow from one: the API's own, then a broker
each.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from headrace.client.transport.discovery import DEV_STATE_NAME
from headrace.core.limits import DEV_BROKERS_MAX
from headrace.dev.supervisor.ports import LOOPBACK

DEFAULT_PORT = 9700
PORTS_TAKEN = DEV_BROKERS_MAX + 2
"""In a row, from the API's own."""


def keep_private() -> None:
    """Have this process, and those that it starts, make files and folders that their user alone can read."""
    os.umask(0o077)


def state_file(home: Path) -> Path:
    """What `headrace dev status -o json` prints, there while it runs; clients find their brokers in it."""
    return home / DEV_STATE_NAME


def lock_file(directory: Path) -> Path:
    """Held by the supervisor, one in its home and one in its data directory."""
    return directory / "dev.lock"


@dataclass(frozen=True, slots=True)
class BrokerTls:
    """PEM files, the same for all brokers."""

    certificate: Path
    key: Path
    authority: Path | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths and addresses of one instance."""

    data: Path
    port: int
    """The embedded API's; broker N listens on `port + 1 + N`."""
    tls: BrokerTls | None = None
    """Of the brokers; the API and the operator are for this machine alone."""

    @property
    def api_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def api_data(self) -> Path:
        return self.data / "api"

    @property
    def kubeconfig(self) -> Path:
        return self.data / "kubeconfig"

    def broker_port(self, broker: int) -> int:
        return self.port + 1 + broker

    def broker_url(self, broker: int) -> str:
        return f"{'http' if self.tls is None else 'https'}://{LOOPBACK}:{self.broker_port(broker)}"

    def broker_data(self, broker: int) -> Path:
        return self.data / f"broker-{broker}"

    @property
    def operator_port(self) -> int:
        return self.broker_port(DEV_BROKERS_MAX)

    def broker_log(self, broker: int | str) -> Path:
        return self.log(f"broker-{broker}")

    def log(self, name: str) -> Path:
        return self.data / "logs" / f"{name}.log"
