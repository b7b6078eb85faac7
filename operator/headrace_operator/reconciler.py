"""The one loop: observe -> plan -> apply, over full state, again whenever something may have changed.

A pass begins when someone rings (a watch, or the pass before that wrote something), when time alone changes the picture
(a Lease runs out, a deletion has waited long enough), and every RECONCILE_RESYNC_MS in any case: a watch that is lost
costs time, never correctness. Passes keep RECONCILE_INTERVAL_MS_MIN between them, and back off with jitter while the
API server is away or writes meet conflicts. A topic that the API server refuses is left until the next resync. While
another operator acts, this one only reads, every RECONCILE_RESYNC_MS and at each change of brokers in watches: when its
turn comes it knows who lives. One task runs the loop; the other methods are called in its event loop.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

from headrace.core.control.last_resort import questions
from headrace.core.control.plan import plan
from headrace.core.control.reclaiming import asks_again, inquiries
from headrace.core.limits import RECONCILE_BACKOFF_MAX_MS, RECONCILE_INTERVAL_MS_MIN, RECONCILE_RESYNC_MS
from headrace.core.resources.lease import BrokerLease
from headrace.core.types import TopicName
from headrace.kube.client import Backoff
from headrace.kube.errors import ApiError
from headrace_operator.applier import Applier, Outcome
from headrace_operator.broker_calls import Inquiry, Reporter
from headrace_operator.metrics import OperatorMetrics
from headrace_operator.observer import Observer, Picture, monotonic_ms

PROMISES_RETRY_MS = 1_000
"""The interval at which brokers are asked what they hold, while no member of an ISR can lead."""
OPERATOR_STALL_MS_MAX = 60_000
"""The time without a pass after which an operator reports itself unhealthy."""


_log = logging.getLogger(__name__)


class Reconciler:
    def __init__(
        self,
        observer: Observer,
        reporter: Reporter,
        applier: Applier,
        metrics: OperatorMetrics,
        rng: Random,
        *,
        acts: Callable[[], bool],
    ) -> None:
        """Take `acts`: whether it is this process' turn to write."""
        self._observer = observer
        self._reporter = reporter
        self._inquiry = Inquiry(reporter, self.ring)
        self._asks_again = False
        """True where brokers are asked soon again what they hold: until there are leaders, and all is set aside."""
        self._applier = applier
        self._metrics = metrics
        self._acts = acts
        self._backoff = Backoff(rng, most_ms=RECONCILE_BACKOFF_MAX_MS)
        self._rung = asyncio.Event()
        self._rung.set()
        self._last_pass_ms = monotonic_ms()
        self._refused_until_ms: dict[TopicName, int] = {}
        self._show: Callable[[Picture], None] = lambda picture: None
        self.idle = asyncio.Event()
        """An event that is clear while a pass is under way: work that can wait leaves the API server to it."""
        self.idle.set()

    def show_to(self, show: Callable[[Picture], None]) -> None:
        """Add a function that gets every picture as soon as it is there, and again, `settled`, where there was nothing
        to do."""
        self._show = show

    @property
    def healthy(self) -> bool:
        """Return whether the loop makes passes. An API server that is away is not a fault of this process."""
        return monotonic_ms() - self._last_pass_ms < OPERATOR_STALL_MS_MAX

    def ring(self) -> None:
        """Wake the loop: something may have changed, or it is this operator's turn."""
        if self._acts():
            self._rung.set()

    def lease_seen(self, lease: BrokerLease) -> None:
        """Take a broker's Lease from a watch; a mere renewal needs no pass."""
        if self._observer.lease_seen(lease):
            self.ring()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._observer.keep_pulse(), name="pulse")
            tasks.create_task(self._inquiry.run(), name="inquiry")
            tasks.create_task(self._loop(), name="loop")

    async def _loop(self) -> None:
        while True:
            await self._wait_for_work()
            self._rung.clear()
            self._last_pass_ms = monotonic_ms()
            self._metrics.reconciles.inc()
            self.idle.clear()
            try:
                with self._metrics.reconcile_seconds.time():
                    clean = await self._one_pass()
            except ApiError as error:
                _log.warning("a pass failed: %s", error)
                self._inquiry.drop()
                clean = False
            finally:
                self.idle.set()
            await self._pause(clean)

    async def _one_pass(self) -> bool:
        """Make one pass; return False where another writer was faster. Raises ApiError while the API server is away."""
        picture = await self._observer.observe()
        acts = self._acts()
        self._metrics.seen(picture)
        self._show(picture)
        if not acts:
            self._inquiry.drop()
            self._refused_until_ms.clear()
            self._metrics.stuck.set(0)  # The operator that acts reports that.
            return True
        picture = self._with_reports(await self._with_promises(picture))
        self._forget_refusals()
        outcomes = set()
        for topic_plan in plan(picture.topics, picture.observed, time.time_ns() // 1_000_000):
            if not self._acts():
                break  # Only the acting operator may act upon what was observed.
            if topic_plan.topic in self._refused_until_ms:
                continue
            self._metrics.actions.inc(len(topic_plan.actions))
            outcome = await self._applier.apply(topic_plan)
            outcomes.add(outcome)
            self._note(topic_plan.topic, outcome)
        self._metrics.stuck.set(len(self._refused_until_ms))
        if Outcome.DONE in outcomes:
            self.ring()  # Read what was written: the status follows what has landed.
        if not outcomes:
            self._show(replace(picture, settled=True))
        return Outcome.OVERTAKEN not in outcomes

    async def _with_promises(self, picture: Picture) -> Picture:
        asked = questions(picture.topics, picture.observed)
        self._asks_again = bool(asked)
        if not asked:
            return picture
        return replace(picture, observed=await self._reporter.asked(picture.observed, asked))

    def _with_reports(self, picture: Picture) -> Picture:
        asked = inquiries(picture.topics, picture.observed)
        observed = self._inquiry.take(picture.observed, asked)
        self._asks_again = self._asks_again or asks_again({*asked} & {*observed.asked}, observed)
        return replace(picture, observed=observed)

    def _note(self, topic: TopicName, outcome: Outcome) -> None:
        """Note an outcome: one topic that the API server refuses must neither hold up the others nor be asked for
        without end."""
        if outcome is Outcome.REFUSED:
            self._metrics.errors.inc()
            self._refused_until_ms[topic] = monotonic_ms() + RECONCILE_RESYNC_MS
        else:
            self._refused_until_ms.pop(topic, None)

    def _forget_refusals(self) -> None:
        """Forget the refusals that are over: what is still refused will be reported again."""
        now_ms = monotonic_ms()
        self._refused_until_ms = {topic: ms for topic, ms in self._refused_until_ms.items() if ms > now_ms}

    async def _pause(self, clean: bool) -> None:
        if clean:
            self._backoff.reset()
            wait_ms: float = RECONCILE_INTERVAL_MS_MIN
        else:
            self._metrics.errors.inc()
            self.ring()
            wait_ms = self._backoff.next_ms()
        await asyncio.sleep(wait_ms / 1000)

    async def _wait_for_work(self) -> None:
        until_ms = monotonic_ms() + (PROMISES_RETRY_MS if self._asks_again else RECONCILE_RESYNC_MS)
        while not self._rung.is_set():
            # Renewals move the next expiry while we wait, so it is computed again.
            next_ms = self._observer.next_change_ms() if self._acts() else None
            wait_ms = min(until_ms, next_ms or until_ms) - monotonic_ms()
            if wait_ms <= 0:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._rung.wait()
