"""Who waits for a coordinator's answer: requests by number, each answered once. On the event loop; one for each
`Coordinating`."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from headrace.core.errors import HeadraceError
from headrace.core.groups.events import CommitReceived, Done, Reply, Request
from headrace.core.groups.identity import GroupName


class _Asked(NamedTuple):
    group: GroupName
    request: Request
    answer: "asyncio.Future[Reply]"


class Requests:
    def __init__(self, committed: Callable[[GroupName, int], None]) -> None:
        """`committed` is told of each commit that was taken, and how many offsets it had."""
        self._committed = committed
        self._last = 0
        self._asked: dict[int, _Asked] = {}

    @property
    def waiting(self) -> int:
        return len(self._asked)

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def expect(self, group: GroupName, request: Request) -> "asyncio.Future[Reply]":
        """Its answer, before the coordinator is told of the request. Raises what it is refused with."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked[request.request] = _Asked(group, request, answer)
        return answer

    def answer(self, number: int, reply: Reply) -> None:
        asked = self._asked.pop(number)
        # Whoever waited may have gone away meanwhile: then the future is cancelled.
        if not asked.answer.done():
            asked.answer.set_result(reply)
        if isinstance(asked.request, CommitReceived) and isinstance(reply, Done):
            self._committed(asked.group, len(asked.request.offsets))

    def refuse(self, number: int, error: HeadraceError) -> None:
        asked = self._asked.pop(number)
        if not asked.answer.done():
            asked.answer.set_exception(error)

    def refuse_all(self, error: HeadraceError) -> None:
        """Whoever is left: nobody else will answer them."""
        for number in [*self._asked]:
            self.refuse(number, error)
