"""The facts about consumer groups that brokers have and the Kubernetes API has not: offsets, ends of logs, present
members.

Any broker takes a request and passes it on: to the group's coordinator, and to the leaders of partitions. Each request
gets a few seconds; a partition whose leader does not answer is unknown. One command owns the object.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Self, TypeVar
from urllib.parse import quote

from headrace.cli.servers import Found
from headrace.client.consumer.options import timestamp_of
from headrace.client.record import TopicPartition
from headrace.client.transport.brokers import Brokers, Workers
from headrace.client.transport.calls import Call, parse_json
from headrace.core.errors import HeadraceError, InvalidRequestError, RemoteError, UnknownGroupError
from headrace.core.groups.identity import GroupState
from headrace.core.groups.lag import Watermarks
from headrace.core.groups.requests import TopicOffset, parse_offsets
from headrace.core.groups.status import GroupReport, GroupSummary, parse_group, parse_groups
from headrace.core.limits import OFFSET_REQUESTS_MAX
from headrace.core.types import BrokerId, Offset

TIMEOUT_MS, BRIEF_TIMEOUT_MS = 5_000, 800
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Live:
    """One group, as its coordinator and the leaders of its partitions report it."""

    report: GroupReport
    offsets: Mapping[TopicPartition, TopicOffset]
    """The offsets of the group; those of a topic that is gone are under its uid."""
    watermarks: Mapping[TopicPartition, Watermarks | None]
    """The watermarks of all partitions of the group's topics; None: the leader does not answer."""


class GroupBrokers:
    def __init__(self, found: Found, namespace: str, timeout_ms: int = TIMEOUT_MS) -> None:
        """Take `timeout_ms`, the time limit of each question, with all its retries."""
        self._brokers = Brokers(found.server, namespace, timeout_ms=timeout_ms, request_timeout_ms=TIMEOUT_MS)
        self._namespace = namespace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._brokers.close()

    # -- groups --------------------------------------------------------------------------------------------------------

    def groups(self) -> tuple[tuple[GroupSummary, ...], tuple[BrokerId, ...]]:
        """Return the groups of the namespace, and the brokers that did not answer. Raises HeadraceError, as all of
        these do."""
        return _understood(parse_groups, self._ask("the groups", "GET", ""))

    def live(self, name: str) -> Live | None:
        """Return the group as it is now; None: its coordinator knows of no such group."""
        try:
            answer = self._ask(f"the group {name}", "GET", f"/{quote(name, safe='')}")
        except UnknownGroupError:
            return None
        report = _understood(lambda body: parse_group(body, self._namespace), answer)
        if report.state is GroupState.DEAD:
            return None
        offsets = {place_of(each): each for each in self.offsets(name)}
        topics = {topic for member in report.members for topic in member.topics} | {place.topic for place in offsets}
        places = {*offsets, *(place for topic in topics for place in self._partitions(topic))}
        return Live(report, offsets, self.watermarks(sorted(places)))

    def offsets(self, name: str) -> tuple[TopicOffset, ...]:
        answer = self._ask(f"the offsets of {name}", "GET", f"/{quote(name, safe='')}/offsets")
        return _understood(parse_offsets, answer)

    def delete(self, name: str) -> None:
        self._ask(f"the group {name}", "DELETE", f"/{quote(name, safe='')}")

    def _ask(self, what: str, method: str, path: str) -> dict[str, Any]:
        base = f"/v1/namespaces/{quote(self._namespace, safe='')}/groups"
        call = Call(method, base + path, TIMEOUT_MS)
        once = partial(self._brokers.request_once, call)
        return parse_json(self._brokers.run(self._brokers.retrying(what, once)).body)

    # -- topics --------------------------------------------------------------------------------------------------------

    @property
    def cluster(self) -> str:
        return str(self._brokers.run(self._brokers.cluster())["cluster"])

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions. Raises UnknownTopicError."""
        layout = self._brokers.run(self._brokers.layout(topic))
        return [TopicPartition(topic, number) for number in range(len(layout.partitions))]

    def _partitions(self, topic: str) -> Iterable[TopicPartition]:
        """Return the partitions; none where brokers do not know the topic any more."""
        with suppress(HeadraceError):
            return self.partitions(topic)
        return ()

    def find_offsets(self, places: Sequence[TopicPartition], start: Any) -> dict[TopicPartition, int]:
        """Return the offset for `start` in each partition; `start` is that of a Consumer, but no number."""
        return self._brokers.run(self._brokers.offsets(places, timestamp_of(start)))

    def watermarks(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks | None]:
        answers: SimpleQueue[tuple[TopicPartition, Watermarks | None]] = SimpleQueue()
        # An executor would make Ctrl-C wait until every look-up has given up.
        workers = Workers("headrace-watermarks", OFFSET_REQUESTS_MAX)
        for place in places:
            workers.submit(partial(self._look_up, place, answers))
        workers.stop()
        found = dict(answers.get() for _ in places)
        return {place: found[place] for place in places}

    def _look_up(self, place: TopicPartition, answers: "SimpleQueue[tuple[TopicPartition, Watermarks | None]]") -> None:
        try:
            start, end = (self._brokers.run(self._brokers.offset(place, at)) for at in ("earliest", "latest"))
            answers.put((place, Watermarks(Offset(start), Offset(end))))
        except Exception:  # Whatever the error is, the offset is not known.
            answers.put((place, None))


def place_of(offset: TopicOffset) -> TopicPartition:
    """Return the partition of an offset; a topic that has no name any more is named by its uid."""
    return TopicPartition(offset.topic or offset.partition.uid, offset.partition.partition)


def _understood(parse: Callable[[Any], T], answer: dict[str, Any]) -> T:
    try:
        return parse(answer)
    except InvalidRequestError as error:
        raise RemoteError(f"a broker answers what is none ({error.message}): is it a Headrace broker?") from error
