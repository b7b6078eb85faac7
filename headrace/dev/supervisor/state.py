"""What runs just now: the file that clients and `headrace dev status` read, rewritten whenever a process changes.

Written in one step (rename), removed by a clean stop. After a kill -9 of the supervisor it is stale until the next one
is there: whoever needs to know asks the lock (`lock.holder`), as `running` does.
"""

import json
import os
from pathlib import Path
from typing import Any

from headrace.core.slotted import dataclass
from headrace.dev.supervisor.errors import NotRunningError
from headrace.dev.supervisor.layout import lock_file, state_file
from headrace.dev.supervisor.lock import holder


@dataclass(frozen=True, slots=True)
class BrokerState:
    id: int
    pid: int | None
    """None between two lives of the process."""
    url: str
    data: str


@dataclass(frozen=True, slots=True)
class DevState:
    kubeconfig: str
    api_url: str
    api_pid: int | None
    operator_pid: int | None
    brokers: tuple[BrokerState, ...]

    def to_json(self) -> dict[str, Any]:
        """The form that api.md fixes for `headrace dev status -o json`."""
        return {
            "kubeconfig": self.kubeconfig,
            "api": {"url": self.api_url, "pid": self.api_pid},
            "operator": {"pid": self.operator_pid},
            "brokers": [{"id": b.id, "pid": b.pid, "url": b.url, "data": b.data} for b in self.brokers],
        }

    @classmethod
    def parse(cls, raw: dict[str, Any]) -> "DevState":
        return cls(
            kubeconfig=raw["kubeconfig"],
            api_url=raw["api"]["url"],
            api_pid=raw["api"]["pid"],
            operator_pid=raw["operator"]["pid"],
            brokers=tuple(BrokerState(b["id"], b["pid"], b["url"], b["data"]) for b in raw["brokers"]),
        )


def write_state(home: Path, state: DevState) -> None:
    path = state_file(home)
    draft = path.with_suffix(".json.new")
    draft.write_text(json.dumps(state.to_json(), indent=2) + "\n")
    os.replace(draft, path)


def remove_state(home: Path) -> None:
    state_file(home).unlink(missing_ok=True)


def supervisor_pid(home: Path) -> int:
    """Raises NotRunningError."""
    pid = holder(lock_file(home))
    if pid is not None:
        return pid
    if state_file(home).exists():
        raise NotRunningError(
            "headrace dev was killed, and its processes with it; if it ran with --detach, it is coming back by itself"
            " just now; else bring it back, with all its data, with: headrace dev --detach"
        )
    raise NotRunningError("headrace dev is not running; start it with: headrace dev --detach")


def running(home: Path) -> DevState:
    """What runs in this home. Raises NotRunningError, also while the first processes are still being started."""
    pid = supervisor_pid(home)
    try:
        return DevState.parse(json.loads(state_file(home).read_text()))
    except FileNotFoundError:
        raise NotRunningError(f"headrace dev is just starting or stopping, as process {pid}; try again") from None
