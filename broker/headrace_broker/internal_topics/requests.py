"""Who waits for a coordinator's answer: requests by number, each answered once. On the event loop; one for each
`LogCoordinating`."""

import asyncio
from typing import Generic, TypeVar

from headrace.core.errors import HeadraceError

ReplyT = TypeVar("ReplyT")


class Requests(Generic[ReplyT]):
    def __init__(self) -> None:
        self._last = 0
        self._asked: dict[int, asyncio.Future[ReplyT]] = {}

    @property
    def waiting(self) -> int:
        return len(self._asked)

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def expect(self, number: int) -> "asyncio.Future[ReplyT]":
        """Its answer, before the coordinator is told of the request. Raises what it is refused with."""
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        return answer

    def answer(self, number: int, reply: ReplyT) -> None:
        answer = self._asked.pop(number)
        # Whoever waited may have gone away meanwhile: then the future is cancelled.
        if not answer.done():
            answer.set_result(reply)

    def refuse(self, number: int, error: HeadraceError) -> None:
        answer = self._asked.pop(number)
        if not answer.done():
            answer.set_exception(error)

    def refuse_all(self, error: HeadraceError) -> None:
        """Whoever is left: nobody else will answer them."""
        for number in [*self._asked]:
            self.refuse(number, error)
