"""A group's coordinator, as a blocking client reaches it: directly where it is known, through any broker where not.

Used by several threads of one consumer. `*_once` try once and raise; the others try again until the time limit is over.
"""

from contextlib import suppress

from headrace.client.brokers import Brokers
from headrace.client.calls import Call
from headrace.client.clock import now_ms
from headrace.client.groups import requests
from headrace.client.groups.requests import GroupOffsets, Joined
from headrace.client.groups.seat import Sending
from headrace.core.errors import HeadraceError, UnknownGroupError, UnknownTopicError
from headrace.core.groups.events import Request
from headrace.core.groups.identity import GroupName, GroupType
from headrace.core.groups.status import Report
from headrace.core.groups.topic_partitions import Names
from headrace.core.limits import GROUP_REQUEST_TIMEOUT_MS
from headrace.core.types import PartitionKey
from headrace.http2.blocking import Response


class Coordinator:
    def __init__(self, brokers: Brokers, group: GroupName, group_type: GroupType = GroupType.CONSUMER) -> None:
        self.what = f"the coordinator of group {group.name}"
        """For the sentences that users read."""
        self._brokers, self._group, self._type = brokers, group, group_type
        self._url: str | None = None
        """None: not known; whoever is asked instead passes the request on."""

    def said_once(self, sending: Sending, by_ms: int | None = None) -> Joined | None:
        """What the coordinator says to a member; None: it knows that it leaves."""
        answer = self.ask_once(sending.send.request, sending.names, sending.send.timeout_ms, by_ms)
        return requests.membership(answer) if sending.is_answered else None

    def ask_once(
        self, request: Request, names: Names, timeout_ms: int = GROUP_REQUEST_TIMEOUT_MS, by_ms: int | None = None
    ) -> Response:
        """Who must be done `by_ms` asks nobody for the way first."""
        url = self._found() if by_ms is None else self._url
        call = requests.call_of(self._group, request, names, url, timeout_ms)
        try:
            return self._get_once(call if by_ms is None else call.within(by_ms - now_ms()))
        except HeadraceError as error:
            self._forget(error)
            raise

    def find(self, by_ms: int) -> None:
        """Ask for the way, where it is not known, until then at most. Raises what no other try would change."""
        self._found(by_ms)

    def _forget(self, error: HeadraceError) -> None:
        if not requests.is_from_coordinator(error):
            self._url = None

    def leave(self, sending: Sending, by_ms: int) -> None:
        """Where nobody hears of it the session ends by itself."""
        with suppress(HeadraceError):
            self._brokers.retrying(
                self.what, lambda: self.said_once(sending, by_ms), timeout_ms=max(0, by_ms - now_ms())
            )

    def offsets(self) -> GroupOffsets:
        """All of the group."""
        return self._brokers.retrying(
            f"the offsets of group {self._group.name}", lambda: self._offsets_once(requests.offsets_call(self._group))
        )

    def offsets_once(self, partitions: frozenset[PartitionKey], names: Names) -> GroupOffsets:
        """Of the topics of these, and perhaps of others."""
        try:
            return self._offsets_once(requests.offsets_call(self._group, self._found(), partitions, names))
        except UnknownTopicError:  # One of them is gone by now: what is left is among everything.
            return self._offsets_once(requests.offsets_call(self._group))
        except HeadraceError as error:
            self._forget(error)
            raise

    def description(self) -> Report:
        answer = self._brokers.retrying(self.what, lambda: self._get_once(requests.description_call(self._group)))
        return requests.description(answer, self._group)

    def _offsets_once(self, call: Call) -> GroupOffsets:
        try:
            return requests.offsets(self._get_once(call))
        except UnknownGroupError:
            return {}

    def _found(self, by_ms: int | None = None) -> str | None:
        if self._url is None:
            call = requests.coordinator_call(self._group, self._type)
            try:
                self._url = requests.coordinator_url(
                    self._get_once(call if by_ms is None else call.within(by_ms - now_ms()))
                )
            except HeadraceError as error:
                if not error.retriable:
                    raise
        return self._url

    def _get_once(self, call: Call) -> Response:
        return self._brokers.request_once(call)
