"""Keeps this broker's Lease true about its troubles: that its disk is full, and which topics' epochs went back.

Others must know of a full disk before this broker steps down because of it: a leader that has not heard would take it
into the ISR again at once. Runs as one task for the life of the process.
"""

import asyncio
import logging

from headrace.core.limits import ISR_TICK_MS
from headrace.core.types import TopicUid
from headrace.kube.errors import ApiError
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.coordination.lease import LeaseHolder
from headrace_broker.coordination.set_writing import SetWriting

_log = logging.getLogger(__name__)
_FULL = "its disk is full"


class Notes:
    def __init__(self, lease: LeaseHolder, disk: BrokerDisk, writing: SetWriting) -> None:
        self._lease = lease
        self._disk = disk
        self._writing = writing
        self._said = (lease.said.full, lease.said.regressed)
        """As the API server is known to have it."""

    async def keep(self) -> None:
        """For ever. Raises SupersededError."""
        while True:
            await asyncio.sleep(ISR_TICK_MS / 1000)
            full, regressed = self._disk.is_full, self._writing.regressed
            if (full, regressed) != self._said:
                await self._say(full=full, regressed=regressed)

    async def _say(self, *, full: bool, regressed: frozenset[TopicUid]) -> None:
        try:
            await self._lease.note(full=full, regressed=regressed)
        except ApiError as error:
            _log.warning("the lease does not say yet how this broker is: %s", error)
            return
        self._said = (full, regressed)
        self._writing.step_aside(_FULL if full else "")
