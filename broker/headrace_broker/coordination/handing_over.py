"""What a broker does between being asked to stop and stopping: others take over what it leads, or all that it holds.

    asked to stop ──> the Lease says draining ──> wait (`core.replication.draining`) ──> step down ──> stop

The operator moves leaderships away from brokers that drain, and replicas away from those whose ordinal the StatefulSet
asks for no longer. Both waits are bounded: whoever stopped this broker gets its way. Where the API server is away
nothing can be handed over, and nothing is waited for.
"""

import asyncio
import logging
from collections.abc import Callable

from headrace.core.limits import DECOMMISSION_TIMEOUT_MS, HANDOVER_POLL_MS, HANDOVER_TIMEOUT_MS, STEP_DOWN_TIMEOUT_MS
from headrace.core.replication.draining import to_give_away, to_hand_over
from headrace.core.types import Seat
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiError
from headrace.kube.resource import STATEFUL_SETS
from headrace_broker.clock import monotonic_ms
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.coordination.set_writing import SetWriting

_log = logging.getLogger(__name__)


class Handover:
    """Made when this broker is asked to stop."""

    def __init__(self, me: Seat, client: KubeClient, view: ClusterView, writing: SetWriting, namespace: str) -> None:
        self._me = me
        self._client = client
        self._view = view
        self._writing = writing
        self._namespace = namespace

    async def run(self) -> None:
        """The Lease says that this broker drains; it goes on with everything else meanwhile."""
        self._writing.claims = False
        if await self._goes_for_good():
            await self._wait(self._held, "replicas to give away", DECOMMISSION_TIMEOUT_MS)
        await self._wait(self._led, "leaderships to hand over", HANDOVER_TIMEOUT_MS)
        self._writing.leave("it stops")
        if not await self._writing.settle(STEP_DOWN_TIMEOUT_MS / 1000):
            _log.warning("stopping in sync: whoever leads finds out by itself")

    async def _goes_for_good(self) -> bool:
        """Whether the StatefulSet, named as the cluster, asks for fewer brokers."""
        try:
            broker_set = await self._client.get(STATEFUL_SETS, self._view.cluster, self._namespace)
        except ApiError as error:
            _log.info("no StatefulSet says whether this broker is to return: %s", error)
            return False
        return not broker_set.asks_for(self._me.broker)

    def _held(self) -> int:
        return to_give_away(self._writing.states(), self._me.broker)

    def _led(self) -> int:
        return to_hand_over(self._writing.states(), self._me, self._view.ready_seats(monotonic_ms()))

    async def _wait(self, count: Callable[[], int], what: str, timeout_ms: int) -> None:
        left = count()
        if left:
            _log.info("draining: %d %s", left, what)
        for _ in range(timeout_ms // HANDOVER_POLL_MS):
            left = count()
            if not left:
                return
            await asyncio.sleep(HANDOVER_POLL_MS / 1000)
        _log.warning("stopping with %d %s: nobody has taken them within %d s", left, what, timeout_ms // 1000)
