"""Waiting for the API server where nothing can be done without it: at the start of a broker.

A process that ended instead would be started again by the kubelet, later each time: up to five minutes after the API
server is back. SIGTERM ends the wait. Where it is for the Lease, the port is open: `/healthz` answers, `/readyz` does
not. Where it is for the certificate (`--tls-secret`), the port is not open yet: there is nothing to show to whoever
connects.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from headrace.core.limits import API_AWAY_REMINDER_MS
from headrace.kube.client import Backoff
from headrace.kube.errors import ApiUnavailableError
from headrace_broker.clock import monotonic_ms

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Patience:
    """Of one wait; `what` it is for, as a clause."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._backoff = Backoff(Random())
        self._told_ms: int | None = None

    async def pause(self, why: ApiUnavailableError) -> None:
        """Before asking once more; said at first, and once in a while."""
        now_ms = monotonic_ms()
        if self._told_ms is None or now_ms - self._told_ms >= API_AWAY_REMINDER_MS:
            self._told_ms = now_ms
            _log.warning("waiting for the API server %s: %s", self._what, why)
        await asyncio.sleep(self._backoff.next_ms() / 1000)


async def patiently(call: Callable[[], Awaitable[T]], what: str) -> T:
    """What `call` brings once the API server answers. Raises every other answer: to wait would not change it."""
    patience = Patience(what)
    while True:
        try:
            return await call()
        except ApiUnavailableError as error:
            await patience.pause(error)
