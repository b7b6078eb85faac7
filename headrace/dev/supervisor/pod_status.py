"""The status of a Pod's container, as a kubelet has it, from the state of a broker's process. Pure.

    running                        ──> state.running; lastState.terminated where it died before
    died, comes again at once      ──> state.terminated
    died again and again, waits    ──> state.waiting CrashLoopBackOff; lastState.terminated
    its Pod is new, no process yet ──> state.waiting ContainerCreating

The operator reads it: a container that has died is a broker that is lost, seconds before its Lease runs out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

IMAGE = "headrace"
_ADDRESS = "127.0.0.1"
_SIGNALLED = 128
"""The number that a shell adds to a signal's number in an exit code."""
_BACKING_OFF = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of one life of the process."""

    code: int
    """The exit code of the process; 128 and the signal's number where one killed it."""
    started_at: str
    finished_at: str

    @classmethod
    def of_process(cls, return_code: int, started_at: str, finished_at: str) -> "Exit":
        """Return the exit of a `return_code` as `subprocess` has it: a signal is its negative number."""
        return cls(return_code if return_code >= 0 else _SIGNALLED - return_code, started_at, finished_at)


@dataclass(frozen=True, slots=True)
class PodStatus:
    """The status of a Pod; times are RFC 3339."""

    ready: bool
    restarts: int
    """The starts of this Pod's process after the first."""
    started_at: str
    """The start of the latest life; empty before the first."""
    running: bool = True
    exited: Exit | None = None
    """The end of the life before this one, or of this one where it does not run."""
    backing_off: bool = False
    """True where it is dead, and not started again at once."""

    def to_object(self) -> dict[str, Any]:
        """Return a Pod's `status`."""
        changed_at = self.exited.finished_at if self.exited is not None and not self.ready else self.started_at
        ready = {"status": str(self.ready), "lastTransitionTime": changed_at}
        there = {"status": "True", "lastTransitionTime": self.started_at}
        conditions = {"PodScheduled": there, "Initialized": there, "ContainersReady": ready, "Ready": ready}
        return {
            "phase": "Running",
            "startTime": self.started_at,
            "hostIP": _ADDRESS,
            "podIP": _ADDRESS,
            "podIPs": [{"ip": _ADDRESS}],
            "conditions": [{"type": name, **condition} for name, condition in conditions.items()],
            "containerStatuses": [
                {
                    "name": "broker",
                    "image": IMAGE,
                    "imageID": "",
                    "ready": self.ready,
                    "started": self.ready,
                    "restartCount": self.restarts,
                    "state": self._state(),
                    "lastState": self._last_state(),
                }
            ],
        }

    def _state(self) -> dict[str, Any]:
        if self.running:
            return {"running": {"startedAt": self.started_at}}
        if self.exited is None:
            return {"waiting": {"reason": "ContainerCreating"}}
        return {"waiting": {"reason": _BACKING_OFF}} if self.backing_off else _terminated(self.exited)

    def _last_state(self) -> dict[str, Any]:
        past = self.exited is not None and (self.running or self.backing_off)
        return _terminated(self.exited) if self.exited is not None and past else {}


def _terminated(end: Exit) -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": end.code,
            "reason": "Completed" if end.code == 0 else "Error",
            "startedAt": end.started_at,
            "finishedAt": end.finished_at,
        }
    }


def parse_pod_status(status: Mapping[str, Any]) -> PodStatus | None:
    """Parse the output of `to_object`; None for a Pod whose process has no status yet."""
    containers = status.get("containerStatuses") or ()
    if not containers:
        return None
    container = containers[0]
    state, last = container.get("state") or {}, container.get("lastState") or {}
    ended = (state if "terminated" in state else last).get("terminated")
    return PodStatus(
        ready=container["ready"],
        restarts=container["restartCount"],
        started_at=status.get("startTime", ""),
        running="running" in state,
        exited=Exit(ended["exitCode"], ended["startedAt"], ended["finishedAt"]) if ended else None,
        backing_off=(state.get("waiting") or {}).get("reason") == _BACKING_OFF,
    )
