"""The way to a group's coordinator: directly where it is known, through any broker where it is not. No I/O.

Everything here is an errand (`transport.errands`), so threads and event loops use the same class; several threads of
one consumer use one object. `*_once` try once and raise; the others try again until the time limit is over.
"""

from contextlib import suppress
from functools import partial

from headrace.client.clock import now_ms
from headrace.client.groups import requests
from headrace.client.groups.member import Sending
from headrace.client.groups.requests import GroupOffsets, Joined
from headrace.client.transport.calls import Call
from headrace.client.transport.errands import BrokerErrands, Errand
from headrace.core.errors import HeadraceError, UnknownGroupError, UnknownTopicError
from headrace.core.groups.assignment import Names
from headrace.core.groups.events import Request
from headrace.core.groups.identity import GroupName, GroupType
from headrace.core.groups.status import GroupReport
from headrace.core.limits import GROUP_REQUEST_TIMEOUT_MS
from headrace.core.types import PartitionKey
from headrace.http2.exchange import Response


class CoordinatorClient:
    def __init__(self, brokers: BrokerErrands, group: GroupName, group_type: GroupType = GroupType.CONSUMER) -> None:
        self.what = f"the coordinator of group {group.name}"
        """The name of the coordinator, as error messages show it."""
        self._brokers, self._group, self._type = brokers, group, group_type
        self._url: str | None = None
        """The coordinator's URL. None: it is not known; another broker passes the request on."""

    def said_once(self, sending: Sending, by_ms: int | None = None) -> Errand[Joined | None]:
        """Send the member's request and return the coordinator's answer; None: it knows that the member leaves."""
        answer = yield from self.ask_once(sending.send.request, sending.names, sending.send.timeout_ms, by_ms)
        return requests.membership(answer) if sending.is_answered else None

    def ask_once(
        self, request: Request, names: Names, timeout_ms: int = GROUP_REQUEST_TIMEOUT_MS, by_ms: int | None = None
    ) -> Errand[Response]:
        """Send the request. With `by_ms` the coordinator's URL is not looked up first."""
        url = (yield from self._found()) if by_ms is None else self._url
        call = requests.call_of(self._group, request, names, url, timeout_ms)
        try:
            return (yield from self._brokers.request_once(call if by_ms is None else call.within(by_ms - now_ms())))
        except HeadraceError as error:
            self._forget(error)
            raise

    def find(self, by_ms: int) -> Errand[None]:
        """Look up the URL where it is not known, until `by_ms` at most. Raises errors that no retry mends."""
        yield from self._found(by_ms)

    def _forget(self, error: HeadraceError) -> None:
        if not requests.is_from_coordinator(error):
            self._url = None

    def leave(self, sending: Sending, by_ms: int) -> Errand[None]:
        """Tell the coordinator that the member leaves. If that fails, the membership ends by its time limit."""
        once = partial(self.said_once, sending, by_ms)
        with suppress(HeadraceError):
            yield from self._brokers.retrying(self.what, once, timeout_ms=max(0, by_ms - now_ms()))

    def offsets(self) -> Errand[GroupOffsets]:
        """Return all offsets of the group."""
        once = partial(self._offsets_once, requests.offsets_call(self._group))
        return (yield from self._brokers.retrying(f"the offsets of group {self._group.name}", once))

    def offsets_once(self, partitions: frozenset[PartitionKey], names: Names) -> Errand[GroupOffsets]:
        """Return the offsets of the topics of these partitions, and perhaps of others."""
        try:
            url = yield from self._found()
            return (yield from self._offsets_once(requests.offsets_call(self._group, url, partitions, names)))
        except UnknownTopicError:  # One of the topics is gone by now: the others are among all offsets.
            return (yield from self._offsets_once(requests.offsets_call(self._group)))
        except HeadraceError as error:
            self._forget(error)
            raise

    def description(self) -> Errand[GroupReport]:
        once = partial(self._brokers.request_once, requests.description_call(self._group))
        answer = yield from self._brokers.retrying(self.what, once)
        return requests.description(answer, self._group)

    def _offsets_once(self, call: Call) -> Errand[GroupOffsets]:
        try:
            answer = yield from self._brokers.request_once(call)
        except UnknownGroupError:
            return {}
        return requests.offsets(answer)

    def _found(self, by_ms: int | None = None) -> Errand[str | None]:
        if self._url is None:
            call = requests.coordinator_call(self._group, self._type)
            try:
                answer = yield from self._brokers.request_once(call if by_ms is None else call.within(by_ms - now_ms()))
                self._url = requests.coordinator_url(answer)
            except HeadraceError as error:
                if not error.retriable:
                    raise
        return self._url
