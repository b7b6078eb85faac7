"""What a broker takes on at one time, so that no load ever makes it run out of memory: requests, and their bytes.

Whatever is held for clients is counted before it is held, and given back when it is gone: bodies on their way in, and
records on their way out until the client's connection has taken them. What does not fit is refused (429, Retry-After),
and costs next to nothing. Answers under pressure become smaller before any is refused: half of what is left is granted
at most, so that a few large ones never shut out the small. JSON takes several times its bytes while it is made or read:
it waits for its turn.

One `Admission` per process, for its lifetime; used on the event loop only. Invariant: `left_bytes` of a budget and all
shares of it sum up to its limit. A share may be larger than what was granted, by the one batch that every fetch gets.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Self

from headrace.core.errors import ThrottledError
from headrace.core.limits import (
    ANSWER_BYTES_IN_FLIGHT_MAX,
    ANSWER_BYTES_MIN,
    BUDGET_BYTES_MIN,
    CONTROL_BYTES_IN_FLIGHT_MAX,
    CONTROL_REQUESTS_IN_FLIGHT_MAX,
    HEARTBEATS_IN_FLIGHT_MAX,
    JSON_BATCH_BYTES_MIN,
    JSON_BYTES_IN_FLIGHT_MAX,
    JSON_MEMORY_FACTOR,
    MEMORY_SHARE_OF_BUDGET,
    PROCESS_BYTES,
    REQUEST_BODY_BYTES_MAX,
    REQUEST_BYTES_IN_FLIGHT_MAX,
    REQUESTS_IN_FLIGHT_MAX,
    WATERMARKS_REQUESTS_IN_FLIGHT_MAX,
)
from headrace.core.log.compaction import compactor_bytes
from headrace.core.slotted import dataclass

_ROOM_S = 1.0


class Budget:
    """Bytes of one kind in memory, over all requests."""

    def __init__(self, what: str, limit_bytes: int) -> None:
        self.what = what
        self.limit_bytes = limit_bytes
        self.left_bytes = limit_bytes
        self.refused = 0
        self._freed: set[asyncio.Future[None]] = set()

    def take(self, size: int) -> None:
        """Raises ThrottledError."""
        if size > self.left_bytes:
            raise self._refusal()
        self.left_bytes -= size

    def grant(self, wanted: int) -> int:
        """Take as many of the wanted bytes as may be held just now. Raises ThrottledError where it is next to none."""
        granted = min(wanted, max(self.left_bytes // 2, ANSWER_BYTES_MIN))
        if granted > self.left_bytes:
            raise self._refusal()
        self.left_bytes -= granted
        return granted

    def give_back(self, size: int) -> None:
        self.left_bytes += size
        if self._freed and self.left_bytes >= ANSWER_BYTES_MIN:
            for freed in self._freed:
                if not freed.done():
                    freed.set_result(None)

    async def room(self, timeout_s: float) -> bool:
        """Wait until something is given back, at most so long: for those who are not to be refused."""
        freed = asyncio.get_running_loop().create_future()
        self._freed.add(freed)
        try:
            done, _ = await asyncio.wait([freed], timeout=timeout_s)
        finally:
            self._freed.discard(freed)
        return bool(done)

    async def wait_for(self, size: int) -> None:
        """Take so many, at most the limit, as soon as they are there."""
        while size > self.left_bytes:
            await self.room(_ROOM_S)
        self.left_bytes -= size

    def share(self) -> "Share":
        return Share(self)

    def _refusal(self) -> ThrottledError:
        self.refused += 1
        return ThrottledError(f"this broker holds as many {self.what} as it may; wait and try again")


class Share:
    """What one request holds of a budget, until the context is left."""

    __slots__ = ("_budget", "taken")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.taken = 0

    def take(self, size: int) -> None:
        """So many more. Raises ThrottledError."""
        self._budget.take(size)
        self.taken += size

    def grant(self, wanted: int) -> int:
        """As `Budget.grant`, in place of what was taken before."""
        self.resize(0)
        self.taken = self._budget.grant(wanted)
        return self.taken

    async def room(self, timeout_s: float) -> bool:
        """As `Budget.room`."""
        return await self._budget.room(timeout_s)

    def resize(self, size: int) -> None:
        """It has turned out to be so many: never refused, as they are there already."""
        self._budget.give_back(self.taken - size)
        self.taken = size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.resize(0)


@dataclass(slots=True)
class Requests:
    """Of one kind, under way now."""

    most: int | None
    """None: somebody else bounds them."""
    under_way: int = 0
    refused: int = 0

    @property
    def is_full(self) -> bool:
        """Asked by a request that counts itself already."""
        return self.most is not None and self.under_way > self.most

    def refusal(self) -> ThrottledError:
        self.refused += 1
        return ThrottledError(f"this broker has {self.most} requests under way, as many as it may; try again")


@dataclass(slots=True)
class Admission:
    bodies: Budget = field(default_factory=lambda: Budget("request bodies", REQUEST_BYTES_IN_FLIGHT_MAX))
    answers: Budget = field(default_factory=lambda: Budget("answers", ANSWER_BYTES_IN_FLIGHT_MAX))
    conversions: Budget = field(default_factory=lambda: Budget("JSON", JSON_BYTES_IN_FLIGHT_MAX))
    control_bodies: Budget = field(default_factory=lambda: Budget("request bodies", CONTROL_BYTES_IN_FLIGHT_MAX))
    clients: Requests = field(default_factory=lambda: Requests(REQUESTS_IN_FLIGHT_MAX))
    """Long polls and watches included."""
    control: Requests = field(default_factory=lambda: Requests(CONTROL_REQUESTS_IN_FLIGHT_MAX))
    """Of those who elect: nobody leads while they wait."""
    watermarks: Requests = field(default_factory=lambda: Requests(WATERMARKS_REQUESTS_IN_FLIGHT_MAX))
    """Of coordinators, for the lag of groups."""
    heartbeats: Requests = field(default_factory=lambda: Requests(HEARTBEATS_IN_FLIGHT_MAX))
    """Of members of groups, which wait for news most of the time."""
    others: Requests = field(default_factory=lambda: Requests(None))
    """Probes, and streams of followers (`replication.served_streams`)."""

    @classmethod
    def for_memory(cls, memory_bytes: int | None) -> Self:
        """For a broker that may use so much in all, the process that compacts included; None: as much as there is."""
        admission = cls()
        if memory_bytes is not None:
            left_bytes = memory_bytes - PROCESS_BYTES - compactor_bytes(memory_bytes)
            share = max(BUDGET_BYTES_MIN, int(left_bytes * MEMORY_SHARE_OF_BUDGET))
            for budget in (admission.bodies, admission.answers, admission.conversions):
                budget.limit_bytes = budget.left_bytes = min(budget.limit_bytes, share)
        return admission

    @property
    def body_bytes_max(self) -> int:
        """Of one request's batches: what can be held at all."""
        return min(REQUEST_BODY_BYTES_MAX, self.bodies.limit_bytes)

    @property
    def json_body_bytes_max(self) -> int:
        """Of one request's JSON."""
        return min(REQUEST_BODY_BYTES_MAX, self.conversions.limit_bytes // JSON_MEMORY_FACTOR)

    @property
    def json_batch_bytes_max(self) -> int:
        """Of one batch that is shown as JSON, once it is decompressed."""
        return max(JSON_BATCH_BYTES_MIN, self.conversions.limit_bytes // JSON_MEMORY_FACTOR)

    @asynccontextmanager
    async def converting(self, size: int) -> AsyncIterator[None]:
        """Around turning records of so many bytes into JSON or back, for as long as both are there. Waits for room.

        One after the other costs no time: all of them share one processor.
        """
        taken = min(size * JSON_MEMORY_FACTOR, self.conversions.limit_bytes)
        await self.conversions.wait_for(taken)
        try:
            yield
        finally:
            self.conversions.give_back(taken)

    @property
    def requests(self) -> int:
        """Under way, of all kinds."""
        return sum(
            kind.under_way for kind in (self.clients, self.control, self.watermarks, self.heartbeats, self.others)
        )

    @property
    def requests_refused(self) -> int:
        return sum(kind.refused for kind in (self.clients, self.control, self.watermarks, self.heartbeats))
