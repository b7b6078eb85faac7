"""The broker processes of one `headrace dev`: who is there, and which Pod stands for whom.

Owns one `Child` per broker and the task that runs it. Called by the supervisor (start, stop) and by the controller
(scale, kill).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from headrace.dev.supervisor.child import Child, Program
from headrace.dev.supervisor.workload import BrokerView


@dataclass(slots=True)
class _Member:
    child: Child
    run: asyncio.Task[None]
    pod_uid: str | None = None
    restarts_before_pod: int = 0
    """A Pod counts the restarts of its own life, as a kubelet does."""


class Fleet:
    def __init__(
        self,
        program: Callable[[int], Program],
        port: Callable[[int], int],
        tasks: asyncio.TaskGroup,
        on_change: Callable[[], None],
        grace_s: float,
    ) -> None:
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

    async def remove(self, broker: int) -> None:
        """Stop it gracefully; its data stays for the day it is added again."""
        await self._members[broker].child.stop(self._grace_s)
        del self._members[broker]
        self._on_change()

    async def stop(self) -> None:
        """All at once, each gracefully."""
        await asyncio.gather(*(member.child.stop(self._grace_s) for member in self._members.values()))

    async def restart(self, broker: int) -> None:
        """Returns when the old process is gone."""
        await self._members[broker].child.terminate(self._grace_s)

    def kill(self, broker: int) -> None:
        self._members[broker].child.kill()

    def set_pod(self, broker: int, uid: str | None) -> None:
        member = self._members[broker]
        if uid is None:  # its process is about to die with its Pod, which is no restart of the next one
            member.restarts_before_pod = member.child.restarts + 1
        member.pod_uid = uid

    def views(self) -> tuple[BrokerView, ...]:
        return tuple(
            BrokerView(
                id=broker,
                ready=child.ready.is_set(),
                restarts=max(0, child.restarts - self._members[broker].restarts_before_pod),
                started_at=child.started_at,
                port=self._port(broker),
                pod_uid=self._members[broker].pod_uid,
            )
            for broker, child in self.children.items()
        )
