"""Everybody who waits at one partition: for what becomes of an append, or for something new to read.

Owned by a `Partition`, on the event loop. Invariant: each append is answered once.
"""

import asyncio
from collections.abc import Callable, Iterable

from headrace.core.errors import HeadraceError, ThrottledError
from headrace.core.limits import APPENDS_WAITING_MAX
from headrace.core.replication.events import Waiter
from headrace.core.types import Acks
from headrace_broker.requests import Place

Answered = Callable[[HeadraceError | None], None]
"""Told what became of an append."""
Wake = Callable[[], None]


class Waiting:
    def __init__(self) -> None:
        self._answers: dict[int, Answered] = {}
        """By waiter, of the appends that are not acknowledged yet."""
        self._last_waiter = 0
        self._readers: set[asyncio.Future[None]] = set()
        """Long polls: woken when there may be something new to say."""
        self._followers: set[Wake] = set()
        self._replicas: set[Wake] = set()

    def check_room(self, place: Place) -> None:
        """Raises ThrottledError."""
        if len(self._answers) >= APPENDS_WAITING_MAX:
            raise ThrottledError(f"{place} has {APPENDS_WAITING_MAX} appends in flight; wait and try again")

    def expect(self, acks: Acks, expires_ms: int, answered: Answered) -> Waiter:
        self._last_waiter += 1
        self._answers[self._last_waiter] = answered
        return Waiter(self._last_waiter, acks, expires_ms)

    def answer(self, waiters: Iterable[int], error: HeadraceError | None) -> None:
        for waiter in waiters:
            self._answers.pop(waiter)(error)

    async def moved(self, timeout_s: float) -> None:
        """Until something is new, or at most so long."""
        woken = asyncio.get_running_loop().create_future()
        self._readers.add(woken)
        try:
            async with asyncio.timeout(timeout_s):
                await woken
        except TimeoutError:
            pass
        finally:
            self._readers.discard(woken)

    def follow(self, wake: Wake, *, appends: bool = False) -> None:
        """Have `wake` called when there is something new for readers; with `appends`, for replicas, too."""
        (self._replicas if appends else self._followers).add(wake)

    def unfollow(self, wake: Wake) -> None:
        self._followers.discard(wake)
        self._replicas.discard(wake)

    @property
    def has_replicas(self) -> bool:
        return bool(self._replicas)

    def wake(self) -> None:
        for woken in self._readers:
            if not woken.done():
                woken.set_result(None)
        for wake in tuple(self._followers):  # They may leave meanwhile.
            wake()
        self.wake_replicas()

    def wake_replicas(self) -> None:
        """Something was appended, which is not committed yet."""
        for wake in tuple(self._replicas):
            wake()
