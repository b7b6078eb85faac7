"""The load that a broker takes on at once, requests and their bytes, bounded so that it never runs out of memory.

Everything that is held for clients is counted as it comes, and given back when it is gone: bodies on their way in by
the bytes that have arrived, never by an announced length, and records on their way out until the client's connection
has taken them. A request that does not fit is refused (429, Retry-After), which costs next to nothing. One client may
hold at most as much of anything as is still free (`core.holders`). Answers under pressure become smaller before any is
refused: half of what is left is granted at most, so that a few large ones never shut out the small. JSON takes several
times its bytes while it is made or read: it waits for its turn.

One `Admission` per process, for its lifetime; used on the event loop only. Invariant: `left_bytes` of a budget, all
shares of it and what `wait_for` has taken sum up to its limit. A fetch always gets one batch, so its share may exceed
its grant.

`memory_limit_bytes` reads once, at the start, how much memory this process may use before the kernel ends it: a
container's limit, or all memory of the machine. A limit that cannot be read is none.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from headrace.core.errors import ThrottledError
from headrace.core.groups.publishing import Newcomers
from headrace.core.holders import Holders
from headrace.core.limits import (
    BUDGET_BYTES_MIN,
    JSON_MEMORY_FACTOR,
    PROCESS_BYTES,
    REQUEST_BODY_BYTES_MAX,
    REQUEST_BYTES_IN_FLIGHT_MAX,
)
from headrace.core.log.compaction import compactor_bytes

ANSWER_BYTES_IN_FLIGHT_MAX = 512 << 20
"""The bytes of records on their way to clients that a broker holds at one time; above it clients get 429 and wait."""
ANSWER_BYTES_MIN = 64 << 10
"""The size below which an answer is not made smaller to fit; where there is no room for it the request is refused."""
MEMORY_SHARE_OF_BUDGET = 0.2
"""The part of the memory left beside the process that each of these gets: bodies, answers, JSON under way."""
JSON_BYTES_IN_FLIGHT_MAX = 512 << 20
"""The memory that JSON may take while it is made or read; above it the next one waits for its turn."""
JSON_BATCH_BYTES_MIN = 16 << 20
"""The decompressed size up to which a batch is shown as JSON, however little memory there is."""
REQUESTS_IN_FLIGHT_MAX = 8192
"""Requests under way over all connections, long polls included; above it clients get 429 and wait."""
CONTROL_REQUESTS_IN_FLIGHT_MAX = 16
"""The same for requests of operators and `headrace cluster recover`: no load of clients keeps them waiting."""
CONTROL_BYTES_IN_FLIGHT_MAX = 16 << 20
"""The bytes of the bodies of control requests."""
HEARTBEATS_IN_FLIGHT_MAX = 1 << 14
"""Heartbeats that wait at one broker: they hold next to nothing, and do not count among its other requests."""
WATERMARKS_REQUESTS_IN_FLIGHT_MAX = 64
"""Requests for high watermarks under way at one broker: other brokers ask every few seconds."""


_CGROUPS = Path("/sys/fs/cgroup")
_LIMIT_FILES = ("memory.max", "memory/memory.limit_in_bytes")
"""The files of version 2 and of version 1; in a container they are those of the container itself."""
_ROOM_S = 1.0


def memory_limit_bytes(cgroups: Path = _CGROUPS) -> int:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(limit for name in _LIMIT_FILES if (limit := _limit_in(cgroups / name)) is not None)])


def _limit_in(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdecimal() else None


class Budget:
    """The bytes of one kind in memory, over all requests."""

    def __init__(self, what: str, limit_bytes: int) -> None:
        self.what = what
        self.limit_bytes = limit_bytes
        self.left_bytes = limit_bytes
        self.holders = Holders()
        self.refused = 0
        self._freed: set[asyncio.Future[None]] = set()

    def check(self, size: int, holder: str | None = None) -> None:
        """Check that so many could be taken just now. Raises ThrottledError."""
        if size > self.room_bytes(holder):
            raise self._refusal(holder)

    def take(self, size: int, holder: str | None = None) -> None:
        """Take so many bytes. Raises ThrottledError."""
        self.check(size, holder)
        self.left_bytes -= size
        self.holders.add(holder, size)

    def grant(self, wanted: int, holder: str | None = None) -> int:
        """Take as many of the wanted bytes as may be held just now. Raises ThrottledError where it is next to none."""
        room_bytes = self.room_bytes(holder)
        granted = min(wanted, max(room_bytes // 2, ANSWER_BYTES_MIN))
        if granted > room_bytes:
            raise self._refusal(holder)
        self.left_bytes -= granted
        self.holders.add(holder, granted)
        return granted

    def give_back(self, size: int, holder: str | None = None) -> None:
        self.left_bytes += size
        self.holders.add(holder, -size)
        if self._freed and self.left_bytes >= ANSWER_BYTES_MIN:
            for freed in self._freed:
                if not freed.done():
                    freed.set_result(None)

    def room_bytes(self, holder: str | None = None) -> int:
        """Return the bytes that the holder may take just now."""
        return self.holders.room(holder, self.left_bytes)

    @property
    def holder_bytes_max(self) -> int:
        """Return the bytes that one client may hold where there is no other."""
        return self.limit_bytes // 2

    async def room(self, timeout_s: float) -> bool:
        """Wait until something is given back, at most so long: for callers that must not be refused."""
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

    def share(self, holder: str | None) -> "BudgetShare":
        """Return a share for `holder`, the client that it is held for; None for the cluster's own work."""
        return BudgetShare(self, holder)

    def _refusal(self, holder: str | None) -> ThrottledError:
        self.refused += 1
        if self.holders.held(holder) and self.left_bytes > 0:
            return ThrottledError(
                f"{holder} has {self.holders.held(holder)} bytes of {self.what} under way at this broker, as many as"
                " one address may; wait and try again"
            )
        return ThrottledError(f"this broker holds as many {self.what} as it may; wait and try again")


class BudgetShare:
    """The part of a budget that one request holds, until the context is left."""

    __slots__ = ("_budget", "holder", "taken")

    def __init__(self, budget: Budget, holder: str | None) -> None:
        self._budget = budget
        self.holder = holder
        self.taken = 0

    def check(self, size: int) -> None:
        """Raise ThrottledError where so many more could not be taken just now."""
        self._budget.check(size, self.holder)

    def take(self, size: int) -> None:
        """Take so many more. Raises ThrottledError."""
        self._budget.take(size, self.holder)
        self.taken += size

    def grant(self, wanted: int) -> int:
        """Grant as `Budget.grant` does, in place of what was taken before."""
        self.resize(0)
        self.taken = self._budget.grant(wanted, self.holder)
        return self.taken

    async def room(self, timeout_s: float) -> bool:
        """Wait for room as `Budget.room` does."""
        return await self._budget.room(timeout_s)

    def resize(self, size: int) -> None:
        """Set the size that it has turned out to be: never refused, as the bytes are there already."""
        self._budget.give_back(self.taken - size, self.holder)
        self.taken = size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.resize(0)


@dataclass(slots=True)
class Requests:
    """The requests of one kind that are under way, and what lasts longer, such as streams and sessions."""

    most: int | None
    """The largest number; None: something else bounds them."""
    what: str = "requests under way"
    under_way: int = 0
    refused: int = 0
    holders: Holders = field(default_factory=Holders)

    @contextmanager
    def one_more(self, holder: str | None) -> Iterator[None]:
        """Count one of them in the block, for a client or for another broker. Raises ThrottledError."""
        if self.most is not None and self.holders.room(holder, self.most - self.under_way) < 1:
            raise self._refusal(holder)
        self.under_way += 1
        self.holders.add(holder, 1)
        try:
            yield
        finally:
            self.under_way -= 1
            self.holders.add(holder, -1)

    def _refusal(self, holder: str | None) -> ThrottledError:
        self.refused += 1
        if self.most is not None and self.under_way < self.most:
            return ThrottledError(
                f"{holder} has {self.holders.held(holder)} {self.what} at this broker, as many as one address may; try"
                " again later"
            )
        return ThrottledError(f"this broker has {self.most} {self.what}, as many as it may; try again later")


@dataclass(slots=True)
class Admission:
    bodies: Budget = field(default_factory=lambda: Budget("request bodies", REQUEST_BYTES_IN_FLIGHT_MAX))
    answers: Budget = field(default_factory=lambda: Budget("answers", ANSWER_BYTES_IN_FLIGHT_MAX))
    conversions: Budget = field(default_factory=lambda: Budget("JSON", JSON_BYTES_IN_FLIGHT_MAX))
    control_bodies: Budget = field(default_factory=lambda: Budget("request bodies", CONTROL_BYTES_IN_FLIGHT_MAX))
    clients: Requests = field(default_factory=lambda: Requests(REQUESTS_IN_FLIGHT_MAX))
    """Requests of clients, long polls and watches included."""
    control: Requests = field(default_factory=lambda: Requests(CONTROL_REQUESTS_IN_FLIGHT_MAX))
    """Requests of the operator: partitions may be without a leader until these are answered."""
    watermarks: Requests = field(default_factory=lambda: Requests(WATERMARKS_REQUESTS_IN_FLIGHT_MAX))
    """Requests of coordinators, for the lag of groups."""
    heartbeats: Requests = field(default_factory=lambda: Requests(HEARTBEATS_IN_FLIGHT_MAX))
    """Heartbeats of members of groups, which wait for news most of the time."""
    others: Requests = field(default_factory=lambda: Requests(None))
    """Probes, streams of followers (`replication.open_streams`), questions on their way in (`http.uploads`)."""
    newcomers: Newcomers = field(default_factory=Newcomers)
    """The groups that clients make."""

    @classmethod
    def for_memory(cls, memory_bytes: int | None) -> Self:
        """Return the admission of a broker that may use so much in all, its compaction process included; None: as much
        as there is."""
        admission = cls()
        if memory_bytes is not None:
            left_bytes = memory_bytes - PROCESS_BYTES - compactor_bytes(memory_bytes)
            share = max(BUDGET_BYTES_MIN, int(left_bytes * MEMORY_SHARE_OF_BUDGET))
            for budget in (admission.bodies, admission.answers, admission.conversions):
                budget.limit_bytes = budget.left_bytes = min(budget.limit_bytes, share)
        return admission

    @property
    def body_bytes_max(self) -> int:
        """Return the largest body of one request's batches: what can be held for one client at all."""
        return min(REQUEST_BODY_BYTES_MAX, self.bodies.holder_bytes_max)

    @property
    def json_body_bytes_max(self) -> int:
        """Return the largest body of one request's JSON."""
        return min(self.body_bytes_max, self.conversions.limit_bytes // JSON_MEMORY_FACTOR)

    @property
    def json_batch_bytes_max(self) -> int:
        """Return the largest batch that is shown as JSON, by its decompressed size."""
        return max(JSON_BATCH_BYTES_MIN, self.conversions.limit_bytes // JSON_MEMORY_FACTOR)

    @property
    def unpacked_bytes_max(self) -> int:
        """Return the largest batch that is produced, by its decompressed size: it is decoded before it is appended."""
        return max(JSON_BATCH_BYTES_MIN, self.conversions.limit_bytes)

    @asynccontextmanager
    async def unpacking(self, size: int) -> AsyncIterator[None]:
        """Wait for room and hold it while batches are decoded, the largest of them of so many bytes once it is
        decompressed."""
        taken = min(size, self.conversions.limit_bytes)
        await self.conversions.wait_for(taken)
        try:
            yield
        finally:
            self.conversions.give_back(taken)

    @asynccontextmanager
    async def converting(self, size: int) -> AsyncIterator[None]:
        """Wait for room and hold it while records of so many bytes are turned into JSON or back, for as long as both
        are there.

        To do them in turn is no slower: all of them share one processor.
        """
        taken = min(size * JSON_MEMORY_FACTOR, self.conversions.limit_bytes)
        await self.conversions.wait_for(taken)
        try:
            yield
        finally:
            self.conversions.give_back(taken)

    @property
    def requests(self) -> int:
        """Return the number under way, of all kinds."""
        return sum(
            kind.under_way for kind in (self.clients, self.control, self.watermarks, self.heartbeats, self.others)
        )

    @property
    def requests_refused(self) -> int:
        return sum(kind.refused for kind in (self.clients, self.control, self.watermarks, self.heartbeats))
