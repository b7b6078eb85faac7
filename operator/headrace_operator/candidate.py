"""The candidate in the election among the operators of a cluster: it reads and writes their Lease as `Candidacy`
decides.

It runs from the start of the process to its end, beside the reconcile loop, which checks `acts` before each write. A
watch shows at once when the holder has let go; decisions use what is read from the API server.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from random import Random

from headrace.core.control.liveness import Candidacy
from headrace.core.limits import API_BACKOFF_MIN_MS, OPERATOR_LEASE_RENEW_MS
from headrace.core.resources.lease import OperatorLease, operator_lease_name
from headrace.core.resources.metadata import Metadata
from headrace.kube.client import Backoff, KubeClient
from headrace.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError, UnreadableObjectError
from headrace.kube.resource import OPERATOR_LEASES
from headrace.kube.watch import watch_one
from headrace_operator.observer import Scope, monotonic_ms

_log = logging.getLogger(__name__)
_VACATE_TRIES = 3
"""The number of tries: one renewal may have landed without an answer; more cannot be under way."""


class OperatorCandidate:
    def __init__(self, client: KubeClient, scope: Scope, identity: str, rng: Random) -> None:
        self._client = client
        self._name, self._namespace = operator_lease_name(scope.cluster), scope.lease_namespace
        self._candidacy = Candidacy(identity, OperatorLease(Metadata(self._name, self._namespace)))
        self._stands_by: bool | None = None
        """The state that was logged last; None before that."""
        self._look = asyncio.Event()
        self._backoff = Backoff(rng, most_ms=OPERATOR_LEASE_RENEW_MS)

    @property
    def acts(self) -> bool:
        """Return whether this operator acts at this moment: no turn outlives its Lease."""
        return self._candidacy.acts(monotonic_ms())

    async def run(self, on_turn: Callable[[], None]) -> None:
        """Run until cancelled; `on_turn` is called each time when it becomes this process' turn."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(), name="watch-operator-lease")
            tasks.create_task(self._stand(on_turn), name="stand")

    async def resign(self) -> None:
        """Let another act at once; `run` has ended, maybe while it renewed: then the Lease is read again."""
        if not self.acts:
            return
        try:
            await self._vacate()
        except ApiError as error:
            _log.warning("the Lease was not given up and runs out by itself: %s", error)

    async def _vacate(self) -> None:
        for _ in range(_VACATE_TRIES):
            vacant = self._candidacy.resign()
            if vacant is None:
                return
            with suppress(ConflictError):
                await self._client.replace(OPERATOR_LEASES, vacant.to_object())
                return
            lease = await self._client.get(OPERATOR_LEASES, self._name, self._namespace)
            self._candidacy.observe(lease, monotonic_ms())

    async def _watch(self) -> None:
        async with aclosing(watch_one(self._client, OPERATOR_LEASES, self._name, self._namespace)) as events:
            async for _ in events:
                self._look.set()

    async def _stand(self, on_turn: Callable[[], None]) -> None:
        while True:
            try:
                if await self._step():
                    on_turn()
            except ApiError as error:
                wait_ms = self._backoff.next_ms()
                _log.log(_level(error), "operator Lease: looking again in %.0f ms: %s", wait_ms, error)
                self._tell()
                # The watch does not shorten this: after a conflict there must be no tight loop.
                await asyncio.sleep(wait_ms / 1000)
            else:
                self._backoff.reset()
                self._tell()
                due_ms = max(API_BACKOFF_MIN_MS, self._candidacy.due_ms() - monotonic_ms())
                await self._sleep(min(OPERATOR_LEASE_RENEW_MS, due_ms))

    async def _step(self) -> bool:
        """Make one step, and return whether a turn has begun."""
        self._look.clear()
        try:
            lease = await self._client.get(OPERATOR_LEASES, self._name, self._namespace)
        except NotFoundError:
            lease = None
        self._candidacy.observe(lease, monotonic_ms())
        asked_ms = monotonic_ms()
        if self._candidacy.due_ms() > asked_ms:
            return False
        bid = self._candidacy.bid(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")).to_object()
        write = self._client.create if lease is None else self._client.replace
        return self._candidacy.won(await write(OPERATOR_LEASES, bid), asked_ms, monotonic_ms())

    def _tell(self) -> None:
        told, self._stands_by = self._stands_by, not self.acts
        if self._stands_by and not told:
            _log.info("this operator stands by; the Lease is held by %s", self._candidacy.holder or "nobody")
        elif told is not False and not self._stands_by:
            _log.info("this operator acts")

    async def _sleep(self, wait_ms: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._look.wait()


def _level(error: ApiError) -> int:
    if isinstance(error, ConflictError | AlreadyExistsError):
        return logging.INFO  # Another operator was faster.
    return logging.ERROR if isinstance(error, UnreadableObjectError) else logging.WARNING
