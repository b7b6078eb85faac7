"""Requests to brokers, and what their answers mean. Pure: `brokers` and `async_brokers` carry them.

A `Call` has a path and no server: which URL it goes to is decided when it is sent (`directory`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self
from urllib.parse import quote, urlencode

from headrace.client.layout import TopicLayout
from headrace.client.record import TopicPartition
from headrace.client.values import as_utf8
from headrace.core.errors import BrokerUnreachableError, HeadraceError, NotReadyError, RemoteError, ThrottledError
from headrace.core.limits import CONSUMER_FRAME_BYTES_MAX, FETCH_BYTES_MIN, METADATA_TIMEOUT_MS
from headrace.core.problem import from_problem
from headrace.core.replication.fence import Fence
from headrace.core.session.terms import FetchTerms, ProduceTerms
from headrace.core.types import Acks, LeaderEpoch, Offset, PartitionId, TopicName, TopicUid

SESSIONS_PATH = "/v1/sessions"
BATCH_TYPE = "application/vnd.headrace.batch"
_DEFAULT_NAMESPACE = "default"
ANSWER_SLACK_MS = 2_000
"""A broker that keeps its own time limit gets this much longer to say so."""
_GATEWAY_STATUSES = frozenset({502, 503, 504})
"""What a proxy between us and the broker says when it cannot reach it."""

Buffers = Sequence[bytes | memoryview]


class Answer(Protocol):
    """A whole response, as both transports give it."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def body(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    timeout_ms: int
    leader_url: str | None = None
    """Who should answer; None: any broker can."""
    body: Buffers = ()
    media_type: str = BATCH_TYPE

    @property
    def timeout_s(self) -> float:
        return (self.timeout_ms + ANSWER_SLACK_MS) / 1000

    def within(self, ms: int) -> Self:
        """Whoever asks waits no longer than this."""
        return replace(self, timeout_ms=min(self.timeout_ms, max(1, ms) - ANSWER_SLACK_MS))

    @property
    def headers(self) -> dict[str, str]:
        if self.body:
            return {"content-type": self.media_type}
        return {"accept": f"{BATCH_TYPE}, application/json"}


@dataclass(frozen=True, slots=True)
class Fetched:
    batches: bytes | bytearray | memoryview
    """Whole ones, one after the other; the first may begin below the offset that was asked for."""
    next_offset: int


@dataclass(frozen=True, slots=True)
class Calls:
    """Those of one client."""

    namespace: str
    timeout_ms: int

    def cluster(self) -> Call:
        return Call("GET", "/v1/cluster", self._metadata_timeout_ms)

    def held(self, broker: int) -> Call:
        return Call("GET", f"/v1/brokers/{broker}/held", self._metadata_timeout_ms)

    def topics(self) -> Call:
        return Call("GET", self._topic_path(""), self._metadata_timeout_ms)

    def topic(self, topic: str) -> Call:
        return Call("GET", self._topic_path(topic), self._metadata_timeout_ms)

    def produce(self, layout: TopicLayout, partition: int, batch: Buffers, acks: str) -> Call:
        query: dict[str, str | int] = {"acks": acks, "timeoutMs": self.timeout_ms}
        return self._on_partition("POST", layout, partition, "records", query, batch=batch)

    def fetch(self, layout: TopicLayout, partition: int, offset: int, *, max_bytes: int, wait_ms: int) -> Call:
        query = {"offset": offset, "maxBytes": max_bytes, "maxWaitMs": wait_ms}
        return self._on_partition("GET", layout, partition, "records", query, wait_ms=wait_ms)

    def offset(self, layout: TopicLayout, partition: int, timestamp: str | int) -> Call:
        return self._on_partition("GET", layout, partition, "offsets", {"timestamp": timestamp})

    def _on_partition(  # noqa: PLR0913 - the parts of one URL
        self,
        method: str,
        layout: TopicLayout,
        partition: int,
        resource: str,
        query: Mapping[str, str | int],
        *,
        batch: Buffers = (),
        wait_ms: int = 0,
    ) -> Call:
        place = layout.partitions[partition]
        parameters: dict[str, str | int] = {**query, "topicUid": layout.uid}
        if place.leader_url is not None:
            parameters["leaderEpoch"] = place.leader_epoch
        path = f"{self._topic_path(layout.topic)}/partitions/{partition}/{resource}?{urlencode(parameters)}"
        return Call(method, path, self.timeout_ms + wait_ms, place.leader_url, batch)

    @property
    def _metadata_timeout_ms(self) -> int:
        return min(METADATA_TIMEOUT_MS, self.timeout_ms)

    def _topic_path(self, topic: str) -> str:
        """Of all topics, where it is empty."""
        return f"/v1/namespaces/{quote(self.namespace, safe='')}/topics/{quote(topic, safe='')}".rstrip("/")


def as_namespace(namespace: str | None) -> str:
    """The default where none is named. Raises LocalError for half of a character, which no URL can have."""
    as_utf8("namespace", namespace or "")
    return namespace or _DEFAULT_NAMESPACE


def produce_terms(namespace: str, layout: TopicLayout, partition: int, acks: str, timeout_ms: int) -> ProduceTerms:
    """What a channel of a session is opened with."""
    fence = Fence(TopicUid(layout.uid), LeaderEpoch(layout.partitions[partition].leader_epoch))
    return ProduceTerms(TopicName(namespace, layout.topic), PartitionId(partition), Acks(acks), timeout_ms, fence)


def fetch_terms(namespace: str, layout: TopicLayout, partition: int, offset: int, window_bytes: int) -> FetchTerms:
    """The same for reading, with room for so many bytes."""
    return FetchTerms(
        TopicName(namespace, layout.topic),
        PartitionId(partition),
        Offset(offset),
        max_bytes=max(FETCH_BYTES_MIN, min(CONSUMER_FRAME_BYTES_MAX, window_bytes // 4)),
        credit=window_bytes,
        fence=Fence(TopicUid(layout.uid), LeaderEpoch(layout.partitions[partition].leader_epoch)),
    )


def check(answer: Answer, url: str) -> None:
    """Raises the error that `url` answered with."""
    if answer.status >= 400:
        raise error_of(answer, url)


def ended_error(url: str) -> BrokerUnreachableError:
    """A session's answer has ended, and nothing was said."""
    return BrokerUnreachableError(f"broker {url} has ended the session")


def overdue_error(url: str, limit_ms: int) -> BrokerUnreachableError:
    """An answer is missing in a session."""
    return BrokerUnreachableError(f"broker {url} did not answer within {limit_ms / 1000:g} s")


def refused_session(answer: Answer, url: str) -> HeadraceError:
    """What to raise where a session was refused; `hasSessions` is False where none is to be had, and requests are left.

    A broker with as many sessions as it keeps still answers requests.
    """
    error = error_of(answer, url)
    if error.retriable and not isinstance(error, ThrottledError):
        return error
    return NotReadyError(f"broker {url} takes no sessions: {error.message}", hasSessions=False)


def base_offset(answer: Answer) -> int:
    """Of the batch that was written; -1 with acks=0."""
    return int(parse_json(answer.body).get("baseOffset", -1))


def fetched(answer: Answer, partition: TopicPartition) -> Fetched:
    try:
        return Fetched(answer.body, int(answer.headers["headrace-next-offset"]))
    except (KeyError, ValueError) as error:
        raise RemoteError(
            f"the answer to reading {partition} is no record batches ({error!r}): is it a Headrace broker?"
        ) from error


def offset(answer: Answer) -> int | None:
    """None: no record is as young as was asked."""
    document = parse_json(answer.body)
    if "offset" not in document:
        raise RemoteError("the answer to looking up an offset has none: is it a Headrace broker?")
    found = document["offset"]
    return None if found is None else int(found)


def topic_names(answer: Answer) -> list[str]:
    """In order."""
    try:
        return sorted(str(topic["name"]) for topic in parse_json(answer.body)["topics"])
    except (KeyError, TypeError) as error:
        raise RemoteError(f"the server's answer is no list of topics ({error!r}): is it a Headrace broker?") from error


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises RemoteError for anything else."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise RemoteError("the server's answer is no JSON object: is it a Headrace broker?")
    return document


def error_of(answer: Answer, url: str) -> HeadraceError:
    """What a response of 400 or above means."""
    try:
        document = parse_json(answer.body)
    except RemoteError:
        document = {"detail": f"{url} answers without a problem document: is it a Headrace broker?"}
    if answer.status in _GATEWAY_STATUSES and "code" not in document:
        said = document.get("message") or document.get("detail")
        return BrokerUnreachableError(f"{url} reaches no broker just now (HTTP {answer.status}): {said}")
    error = from_problem(document, answer.status)
    wait_s = answer.headers.get("retry-after", "")
    if wait_s.isdecimal():
        error.details.setdefault("retryAfterMs", int(wait_s) * 1000)
    return error
