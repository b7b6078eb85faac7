"""A group's coordinator as an asyncio client reaches it: what `coordinator` is for threads."""

from contextlib import suppress

from headrace.client.async_brokers import AsyncBrokers
from headrace.client.calls import Call
from headrace.client.clock import now_ms
from headrace.client.groups import requests
from headrace.client.groups.requests import GroupOffsets, Joined
from headrace.client.groups.seat import Sending
from headrace.core.errors import HeadraceError, UnknownGroupError, UnknownTopicError
from headrace.core.groups.events import Request
from headrace.core.groups.identity import GroupName
from headrace.core.groups.status import Report
from headrace.core.groups.topic_partitions import Names
from headrace.core.limits import GROUP_REQUEST_TIMEOUT_MS
from headrace.core.types import PartitionKey
from headrace.http2.blocking import Response


class AsyncCoordinator:
    def __init__(self, brokers: AsyncBrokers, group: GroupName) -> None:
        self.what = f"the coordinator of group {group.name}"
        """For the sentences that users read."""
        self._brokers, self._group = brokers, group
        self._url: str | None = None
        """None: not known; whoever is asked instead passes the request on."""

    async def said_once(self, sending: Sending, by_ms: int | None = None) -> Joined | None:
        """What the coordinator says to a member; None: it knows that it leaves."""
        answer = await self.ask_once(sending.send.request, sending.names, sending.send.timeout_ms, by_ms)
        return requests.membership(answer) if sending.is_answered else None

    async def ask_once(
        self, request: Request, names: Names, timeout_ms: int = GROUP_REQUEST_TIMEOUT_MS, by_ms: int | None = None
    ) -> Response:
        """Who must be done `by_ms` asks nobody for the way first."""
        url = await self._found() if by_ms is None else self._url
        call = requests.call_of(self._group, request, names, url, timeout_ms)
        try:
            return await self._get_once(call if by_ms is None else call.within(by_ms - now_ms()))
        except HeadraceError as error:
            self._forget(error)
            raise

    def _forget(self, error: HeadraceError) -> None:
        if not requests.is_from_coordinator(error):
            self._url = None

    async def leave(self, sending: Sending, by_ms: int) -> None:
        """Where nobody hears of it the session ends by itself."""
        with suppress(HeadraceError):
            await self._brokers.retrying(
                self.what, lambda: self.said_once(sending, by_ms), timeout_ms=max(0, by_ms - now_ms())
            )

    async def offsets(self) -> GroupOffsets:
        """All of the group."""
        return await self._brokers.retrying(
            f"the offsets of group {self._group.name}", lambda: self._offsets_once(requests.offsets_call(self._group))
        )

    async def offsets_once(self, partitions: frozenset[PartitionKey], names: Names) -> GroupOffsets:
        """Of the topics of these, and perhaps of others."""
        try:
            return await self._offsets_once(requests.offsets_call(self._group, await self._found(), partitions, names))
        except UnknownTopicError:  # One of them is gone by now: what is left is among everything.
            return await self._offsets_once(requests.offsets_call(self._group))
        except HeadraceError as error:
            self._forget(error)
            raise

    async def description(self) -> Report:
        answer = await self._brokers.retrying(self.what, lambda: self._get_once(requests.description_call(self._group)))
        return requests.description(answer, self._group)

    async def _offsets_once(self, call: Call) -> GroupOffsets:
        try:
            return requests.offsets(await self._get_once(call))
        except UnknownGroupError:
            return {}

    async def _found(self) -> str | None:
        if self._url is None:
            try:
                self._url = requests.coordinator_url(await self._get_once(requests.coordinator_call(self._group)))
            except HeadraceError as error:
                if not error.retriable:
                    raise
        return self._url

    async def _get_once(self, call: Call) -> Response:
        return await self._brokers.request_once(call)
