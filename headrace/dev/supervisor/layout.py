"""The places of one `headrace dev`: its home, its data directory, its logs, its ports, and the options that set them.

The home (`$HEADRACE_HOME`, else `~/.headrace`) belongs to a user and has at most one running `headrace dev`; the data
directory holds everything that survives a restart, and the logs. Logs are appended to over restarts, and bounded by
keeping one older part. Ports follow from one: the API's own, then a broker each. A port that was free a moment ago may
be taken before it is used: the program that binds it must handle that error. `SupervisorOptions` are the settings of a
supervisor's start; they are sent to a process of its own as JSON.
"""

import json
import os
import random
import socket
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import BinaryIO

from headrace.client.transport.discovery import DEV_STATE_NAME
from headrace.core.limits import DEV_BROKERS_MAX

DEV_LOG_BYTES_MAX = 10 << 20
"""The size above which a child's log file is moved aside at the start of the next life."""


LOOPBACK = "127.0.0.1"
_RANGE = range(20_000, 32_000)
"""The ports to choose from, below Linux's ephemeral ports, so that no outgoing connection takes one in between."""
_ATTEMPTS = 200
DEFAULT_PORT = 9700
PORTS_TAKEN = DEV_BROKERS_MAX + 2
"""The number of ports in a row, from the API's own."""
DEFAULT_BROKERS = 3


class NoFreePortsError(OSError):
    """No run of free ports was found."""


def is_port_free(port: int) -> bool:
    """Return whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port_run(count: int, choose: random.Random) -> int:
    """Return the first of `count` ports in a row that are all free. Raises NoFreePortsError."""
    for _ in range(_ATTEMPTS):
        first = choose.randrange(_RANGE.start, _RANGE.stop - count)
        if all(is_port_free(port) for port in range(first, first + count)):
            return first
    raise NoFreePortsError(f"no {count} free ports in a row between {_RANGE.start} and {_RANGE.stop}")


def open_log(path: Path) -> BinaryIO:
    """Open a log for appending; a file above the bound is moved aside as `<name>.1` first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.stat().st_size > DEV_LOG_BYTES_MAX:
        os.replace(path, path.with_name(path.name + ".1"))
    path.touch(mode=0o600)
    path.chmod(0o600)  # A file of an earlier version may be readable by all.
    return path.open("ab", buffering=0)


def last_lines(path: Path, count: int) -> str:
    """Return the end of a log, for an error message; empty where there is none."""
    if not path.exists():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-count:])


def keep_private() -> None:
    """Have this process, and those that it starts, make files and folders that their user alone can read."""
    os.umask(0o077)


def state_file(home: Path) -> Path:
    """Return the file that `headrace dev status -o json` prints, there while it runs; clients find their brokers in
    it."""
    return home / DEV_STATE_NAME


def lock_file(directory: Path) -> Path:
    """Return the file that the supervisor locks, one in its home and one in its data directory."""
    return directory / "dev.lock"


@dataclass(frozen=True, slots=True)
class BrokerTls:
    """The PEM files, the same for all brokers."""

    certificate: Path
    key: Path
    authority: Path | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths and addresses of one instance."""

    data: Path
    port: int
    """The embedded API's port; broker N listens on `port + 1 + N`."""
    tls: BrokerTls | None = None
    """The TLS files of the brokers; the API and the operator are for this machine alone."""

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


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    home: Path
    layout: Layout
    brokers: int | None
    """The number of brokers; None: as many as the StatefulSet of an earlier run asks for, else DEFAULT_BROKERS."""
    manifests: tuple[Path, ...] = ()
    takes_over: bool = False
    """True where it takes over from a supervisor that was killed just now."""

    def of_successor(self) -> "SupervisorOptions":
        """Return the options of a successor: the wishes of the first start are carried out, and what users changed
        since then stays."""
        return replace(self, brokers=None, manifests=(), takes_over=True)

    def to_json(self) -> str:
        return json.dumps(
            {
                "home": str(self.home),
                "data": str(self.layout.data),
                "port": self.layout.port,
                "tls": [str(path) for path in astuple(self.layout.tls) if path] if self.layout.tls else None,
                "brokers": self.brokers,
                "manifests": [str(path) for path in self.manifests],
                "takes_over": self.takes_over,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "SupervisorOptions":
        raw = json.loads(text)
        tls = BrokerTls(*map(Path, raw["tls"])) if raw["tls"] else None
        return cls(
            home=Path(raw["home"]),
            layout=Layout(Path(raw["data"]), raw["port"], tls),
            brokers=raw["brokers"],
            manifests=tuple(Path(path) for path in raw["manifests"]),
            takes_over=raw["takes_over"],
        )
