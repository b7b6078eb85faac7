"""Asks brokers what they hold in a task beside the loop: one that hangs must not hold up what else there is to decide.

    take, nothing is here of what is wanted ──> asking ── all have answered, or have had their time ──> it rings
    take, it is here ──> handed out, once: what was said before the last pass may not be so any more

Owned by the reconciler; `run` is a task of its own, one round at a time. What is under way when this operator stops
acting is not used: `drop`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.core.control.observed import Observed
from headrace.core.types import TopicUid
from headrace_operator.reporter import Reporter


class Inquiry:
    def __init__(self, reporter: Reporter, ring: Callable[[], None]) -> None:
        self._reporter = reporter
        self._ring = ring
        self._wanted: tuple[Observed, Sequence[TopicUid]] | None = None
        self._asking: Sequence[TopicUid] = ()
        """Of the round that is under way; empty where there is none, or nobody wants it any more."""
        self._answers: Observed | None = None
        self._changed = asyncio.Event()

    def take(self, observed: Observed, uids: Sequence[TopicUid]) -> Observed:
        """`observed` with what brokers have answered since the last time; what is missing of `uids` is asked for."""
        answers, self._answers = self._answers, None
        here = answers.asked if answers is not None else ()
        if not {*uids} <= {*here} and not {*uids} <= {*self._asking}:
            self._wanted = observed, uids
            self._changed.set()
        return observed if answers is None else replace(observed, reports=answers.reports, asked=here)

    def drop(self) -> None:
        """Nobody wants to know any more, whatever is under way."""
        self._wanted, self._asking, self._answers = None, (), None

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted, self._wanted = self._wanted, None
            if wanted is not None:
                await self._ask(*wanted)

    async def _ask(self, observed: Observed, uids: Sequence[TopicUid]) -> None:
        self._asking = uids
        answers = await self._reporter.reported(observed, uids)
        if self._asking is uids:
            self._asking, self._answers = (), answers
            self._ring()
