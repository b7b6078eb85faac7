"""The broker processes of one `headrace dev`: who is there, and which Pod stands for whom.

Owns one `Child` per broker and the task that runs it. Called by the supervisor (start, stop) and by the controller
(scale, kill).
"""

import asyncio
from collections.abc import Callable

from headrace.core.slotted import dataclass
from headrace.dev.supervisor.child import Child, Program
from headrace.dev.supervisor.pod_status import PodStatus
from headrace.dev.supervisor.workload import BrokerView
from headrace.dev.supervisor.workload_objects import LEAVING_GRACE_S


@dataclass(slots=True)
class _Member:
    child: Child
    run: asyncio.Task[None]
    pod_uid: str | None = None
    restarts_before_pod: int = 0
    """A Pod counts the restarts of its own life, as a kubelet does."""
    stopping: bool = False

    def status(self) -> PodStatus:
        child = self.child
        running, restarts = child.pid is not None, max(0, child.restarts - self.restarts_before_pod)
        of_this_pod = restarts > 0 or (not running and child.restarts >= self.restarts_before_pod)
        return PodStatus(
            ready=child.ready.is_set(),
            restarts=restarts,
            started_at=child.started_at,
            running=running,
            exited=child.exited if of_this_pod else None,
            backing_off=child.is_backing_off,
        )


class Fleet:
    def __init__(
        self,
        program: Callable[[int], Program],
        port: Callable[[int], int],
        tasks: asyncio.TaskGroup,
        on_change: Callable[[], None],
        grace_s: float,
    ) -> None:
        """`grace_s`: what each gets where all stop at once."""
        self._program = program
        self._port = port
        self._tasks = tasks
        self._on_change = on_change
        self._grace_s = grace_s
        self._members: dict[int, _Member] = {}

    @property
    def children(self) -> dict[int, Child]:
        """By broker id, ascending."""
        return {broker: self._members[broker].child for broker in sorted(self._members)}

    def add(self, broker: int) -> None:
        child = Child(self._program(broker), self._on_change)
        self._members[broker] = _Member(child, self._tasks.create_task(child.run()))

    def remove(self, broker: int) -> None:
        """Stop it gracefully, beside all else; its data stays for the day it is added again."""
        self._members[broker].stopping = True
        self._tasks.create_task(self._leave(broker))

    async def stop(self) -> None:
        """All at once, each gracefully."""
        await asyncio.gather(*(member.child.stop(self._grace_s) for member in self._members.values()))

    def restart(self, broker: int) -> None:
        """Stop its process gracefully, beside all else; the next one follows."""
        self._members[broker].stopping = True
        self._tasks.create_task(self._end_life(broker))

    def kill(self, broker: int) -> None:
        """One that is stopping may be gone since it was looked at: then there is nothing to do, here and below."""
        if broker in self._members:
            self._members[broker].child.kill()

    def set_pod(self, broker: int, uid: str | None) -> None:
        member = self._members.get(broker)
        if member is None:
            return
        if uid is None:  # its process is about to die with its Pod, which is no restart of the next one
            member.restarts_before_pod = member.child.restarts + 1
        member.pod_uid = uid

    def views(self) -> tuple[BrokerView, ...]:
        return tuple(
            BrokerView(broker, member.status(), self._port(broker), member.pod_uid, member.stopping)
            for broker, member in sorted(self._members.items())
        )

    async def _leave(self, broker: int) -> None:
        await self._members[broker].child.stop(LEAVING_GRACE_S)
        del self._members[broker]
        self._on_change()

    async def _end_life(self, broker: int) -> None:
        member = self._members[broker]
        await member.child.terminate(LEAVING_GRACE_S)
        member.stopping = False
        self._on_change()
