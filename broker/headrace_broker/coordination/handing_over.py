"""What a broker does between being asked to stop and stopping: others take over what it leads, or all that it holds.

    asked to stop ──> the Lease says draining ──> three waits (`core.replication.draining`) ──> step down ──> stop

The operator moves leaderships away from brokers that drain, and replicas away from those whose ordinal the StatefulSet
asks for no longer, as long as it does; what it said last counts while it cannot be read. Leaders take replicas that
have caught up into the ISR: until then this broker stays where too few would be in sync without it. All waits are
bounded: whoever stopped this broker gets its way. Where the API server is away nothing can be handed over, and nobody
is waited for.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from headrace.core.limits import (
    CATCH_UP_LOOK_MS,
    CATCH_UP_TIMEOUT_MS,
    DECOMMISSION_LOOK_MS,
    DECOMMISSION_TIMEOUT_MS,
    HANDOVER_POLL_MS,
    HANDOVER_TIMEOUT_MS,
    STEP_DOWN_TIMEOUT_MS,
    WAITED_FOR_NAMED_MAX,
)
from headrace.core.replication.draining import (
    Placed,
    ToGiveAway,
    kept_in_sync,
    placed,
    to_give_away,
    to_hand_over,
)
from headrace.core.resources.kubernetes_objects import BrokerSet
from headrace.core.types import Seat
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiError, NotFoundError
from headrace.kube.resource import STATEFUL_SETS
from headrace_broker.clock import monotonic_ms
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.coordination.set_writing import SetWriting

_log = logging.getLogger(__name__)
_REMEDY = "no other broker can take them: start more, lower spec.replicas, or resume what is paused"


class Handover:
    """Made when this broker is asked to stop."""

    def __init__(self, me: Seat, client: KubeClient, view: ClusterView, writing: SetWriting, namespace: str) -> None:
        self._me = me
        self._client = client
        self._view = view
        self._writing = writing
        self._namespace = namespace
        self._told: ToGiveAway | None = None
        self._kept_by: frozenset[str] = frozenset()
        """Partitions that would have too few in sync without this broker, as the log says."""

    async def run(self) -> None:
        """The Lease says that this broker drains; it goes on with everything else meanwhile."""
        asked_ms = monotonic_ms()
        self._writing.claims = False
        await self._give_away()
        await self._stay_in_sync(asked_ms + CATCH_UP_TIMEOUT_MS)
        await self._wait(self._led, "leaderships to hand over", HANDOVER_TIMEOUT_MS)
        self._writing.leave("it stops")
        if not await self._writing.settle(STEP_DOWN_TIMEOUT_MS / 1000):
            _log.warning("stopping in sync: whoever leads finds out by itself")

    async def _give_away(self) -> None:
        """Where the StatefulSet, named as the cluster, asks for fewer brokers, and for as long as it does."""
        deadline_ms, staying = monotonic_ms() + DECOMMISSION_TIMEOUT_MS, None
        while monotonic_ms() < deadline_ms:
            staying = await self._broker_set(staying)
            if staying is None or staying.asks_for(self._me.broker):
                return
            self._tell(self._held(staying))
            if await self._is_over(partial(self._awaited, staying), DECOMMISSION_LOOK_MS):
                return
        _log.warning("stopping after %d s with replicas that others need", DECOMMISSION_TIMEOUT_MS // 1000)

    async def _broker_set(self, last: BrokerSet | None) -> BrokerSet | None:
        """As it is now; where that cannot be learned, the `last` one: no move is left for one bad answer."""
        try:
            return await self._client.get(STATEFUL_SETS, self._view.cluster, self._namespace)
        except NotFoundError as error:
            _log.info("no StatefulSet says whether this broker is to return: %s", error)
            return None
        except ApiError as error:
            _log.info("the StatefulSet does not say now whether this broker is to return: %s", error)
            return last

    def _tell(self, held: ToGiveAway) -> None:
        """With each change."""
        if held == self._told:
            return
        self._told = held
        _log.info("draining: %d replicas to give away", held.moving)
        if held.needed:
            _log.warning("%d replicas wait: acks=all would be refused without them; %s", held.needed, _REMEDY)
        if held.left:
            _log.warning("%d replicas go with this broker, their topics have a copy less; %s", held.left, _REMEDY)

    def _held(self, staying: BrokerSet) -> ToGiveAway:
        return to_give_away(self._placed(), self._me.broker, staying, self._view.ready_seats(monotonic_ms()))

    def _awaited(self, staying: BrokerSet) -> int:
        return self._held(staying).awaited

    async def _stay_in_sync(self, deadline_ms: int) -> None:
        """While replicas catch up without which too few would be in sync: it follows and votes meanwhile, as ever."""
        if not await self._is_over(self._kept, deadline_ms - monotonic_ms(), CATCH_UP_LOOK_MS):
            _log.warning("stopping although too few are in sync then: %s", _listed(sorted(self._kept_by)))

    def _kept(self) -> int:
        """By how many partitions; told with each one that is new."""
        kept = kept_in_sync(self._placed(), self._me, self._view.ready_seats(monotonic_ms()))
        names = frozenset(map(str, kept))
        if not names <= self._kept_by:
            _log.info("draining: in sync until other replicas have caught up: %s", _listed(sorted(names)))
        self._kept_by = names
        return len(names)

    def _led(self) -> int:
        return to_hand_over(self._placed(), self._me, self._view.ready_seats(monotonic_ms()))

    def _placed(self) -> Iterator[Placed]:
        return placed(self._writing.sets(), self._view.topics(), self._view.regressed(monotonic_ms()))

    async def _wait(self, count: Callable[[], int], what: str, timeout_ms: int) -> None:
        left = count()
        if left:
            _log.info("draining: %d %s", left, what)
        if not await self._is_over(count, timeout_ms):
            _log.warning("stopping with %d %s: nobody has taken them within %d s", count(), what, timeout_ms // 1000)

    async def _is_over(self, count: Callable[[], int], timeout_ms: int, look_ms: int = HANDOVER_POLL_MS) -> bool:
        deadline_ms = monotonic_ms() + timeout_ms
        while monotonic_ms() < deadline_ms:
            if not count():
                return True
            await asyncio.sleep(look_ms / 1000)
        return not count()


def _listed(names: Sequence[str]) -> str:
    more = len(names) - WAITED_FOR_NAMED_MAX
    return ", ".join(names[:WAITED_FOR_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
