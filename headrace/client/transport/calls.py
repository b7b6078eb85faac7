"""The requests to brokers, the meaning of their answers, and the directory that chooses a URL for each. Pure.

A `Call` has a path and no server: its URL is chosen when it is sent, by the `Directory`. The directory also keeps the
newest metadata of each topic and notices topics that were deleted and created again. A producer or consumer owns one
directory and shares it among its threads: every step is one operation on a dictionary, and a layout is replaced whole.
`brokers` and `async_brokers` carry the calls; time comes in as `now_ms`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self
from urllib.parse import quote, urlencode

from headrace.client.record import TopicPartition, as_utf8
from headrace.client.transport.discovery import Servers
from headrace.client.transport.metadata import Routes, TopicLayout
from headrace.core.errors import (
    BrokerUnreachableError,
    HeadraceError,
    NotReadyError,
    RemoteError,
    StaleTopicError,
    ThrottledError,
    UnknownPartitionError,
    UntrustedBrokerError,
    from_problem,
)
from headrace.core.frames.session_terms import FetchTerms, ProduceTerms
from headrace.core.limits import FETCH_BYTES_MIN
from headrace.core.log.epochs import Fence
from headrace.core.types import Acks, LeaderEpoch, Offset, PartitionId, TopicName, TopicUid

METADATA_TIMEOUT_MS = 5_000
"""The time limit of a request for metadata: any broker can answer it, so a slow one is not waited for."""
CONSUMER_FRAME_BYTES_MAX = 1 << 20
"""The bytes that a broker pushes to a consumer at a time; the consumer has room for more."""


SESSIONS_PATH = "/v1/sessions"
BATCH_TYPE = "application/vnd.headrace.batch"
_DEFAULT_NAMESPACE = "default"
ANSWER_SLACK_MS = 2_000
"""A broker that keeps its own time limit gets this much longer to say so."""
_GATEWAY_STATUSES = frozenset({502, 503, 504})
"""The answers of a proxy between us and the broker when the proxy cannot reach the broker."""

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
    """The URL of the broker that should answer; None: any broker can."""
    body: Buffers = ()
    media_type: str = BATCH_TYPE

    @property
    def timeout_s(self) -> float:
        return (self.timeout_ms + ANSWER_SLACK_MS) / 1000

    def within(self, ms: int) -> Self:
        """Return the call with a shorter time limit: the caller waits no longer than this."""
        return replace(self, timeout_ms=min(self.timeout_ms, max(1, ms) - ANSWER_SLACK_MS))

    @property
    def headers(self) -> dict[str, str]:
        if self.body:
            return {"content-type": self.media_type}
        return {"accept": f"{BATCH_TYPE}, application/json"}


@dataclass(frozen=True, slots=True)
class Fetched:
    batches: bytes | bytearray | memoryview
    """Whole batches, one after the other; the first may begin below the offset that was asked for."""
    next_offset: int


@dataclass(frozen=True, slots=True)
class Calls:
    """The requests of one client."""

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
        """Return the path of a topic; that of all topics where the name is empty."""
        return f"/v1/namespaces/{quote(self.namespace, safe='')}/topics/{quote(topic, safe='')}".rstrip("/")


def as_namespace(namespace: str | None) -> str:
    """Return the namespace, or the default. Raises LocalError for half of a character, which no URL can have."""
    as_utf8("namespace", namespace or "")
    return namespace or _DEFAULT_NAMESPACE


def produce_terms(namespace: str, layout: TopicLayout, partition: int, acks: str, timeout_ms: int) -> ProduceTerms:
    """Return the terms with which a channel of a session is opened for writing."""
    fence = Fence(TopicUid(layout.uid), LeaderEpoch(layout.partitions[partition].leader_epoch))
    return ProduceTerms(TopicName(namespace, layout.topic), PartitionId(partition), Acks(acks), timeout_ms, fence)


def fetch_terms(namespace: str, layout: TopicLayout, partition: int, offset: int, window_bytes: int) -> FetchTerms:
    """Return the terms with which a channel is opened for reading, with room for so many bytes."""
    return FetchTerms(
        TopicName(namespace, layout.topic),
        PartitionId(partition),
        Offset(offset),
        max_bytes=max(FETCH_BYTES_MIN, min(CONSUMER_FRAME_BYTES_MAX, window_bytes // 4)),
        credit=window_bytes,
        fence=Fence(TopicUid(layout.uid), LeaderEpoch(layout.partitions[partition].leader_epoch)),
    )


def check(answer: Answer, url: str) -> None:
    """Raise the error that `url` answered with."""
    if answer.status >= 400:
        raise error_of(answer, url)


def ended_error(url: str) -> BrokerUnreachableError:
    """Return the error of a session whose answer has ended without a reason."""
    return BrokerUnreachableError(f"broker {url} has ended the session")


def overdue_error(url: str, limit_ms: int) -> BrokerUnreachableError:
    """Return the error of a session in which an answer is missing."""
    return BrokerUnreachableError(f"broker {url} did not answer within {limit_ms / 1000:g} s")


def refused_session(answer: Answer, url: str) -> HeadraceError:
    """Return the error of a refused session; `hasSessions` is False where the broker takes none, but takes requests.

    A broker with as many sessions as it keeps still answers requests.
    """
    error = error_of(answer, url)
    if error.retriable and not isinstance(error, ThrottledError):
        return error
    return NotReadyError(f"broker {url} takes no sessions: {error.message}", hasSessions=False)


def base_offset(answer: Answer) -> int:
    """Return the base offset of the batch that was written; -1 with acks=0."""
    return int(parse_json(answer.body).get("baseOffset", -1))


def fetched(answer: Answer, partition: TopicPartition) -> Fetched:
    try:
        return Fetched(answer.body, int(answer.headers["headrace-next-offset"]))
    except (KeyError, ValueError) as error:
        raise RemoteError(
            f"the answer to reading {partition} is no record batches ({error!r}): is it a Headrace broker?"
        ) from error


def offset(answer: Answer) -> int | None:
    """Return the offset that was looked up. None: no record is at or after the time."""
    document = parse_json(answer.body)
    if "offset" not in document:
        raise RemoteError("the answer to looking up an offset has none: is it a Headrace broker?")
    found = document["offset"]
    return None if found is None else int(found)


def topic_names(answer: Answer) -> list[str]:
    """Return the names of topics, sorted."""
    try:
        return sorted(str(topic["name"]) for topic in parse_json(answer.body)["topics"])
    except (KeyError, TypeError) as error:
        raise RemoteError(f"the server's answer is no list of topics ({error!r}): is it a Headrace broker?") from error


def parse_json(body: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises RemoteError for anything else."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise RemoteError("the server's answer is no JSON object: is it a Headrace broker?")
    return document


def error_of(answer: Answer, url: str) -> HeadraceError:
    """Return the error that a response of 400 or above means."""
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


@dataclass(slots=True)
class Directory:
    servers: Servers
    routes: Routes = field(init=False)
    newest: Callable[[str], TopicLayout | None] = field(init=False)
    """The newest layout of a topic, however old it is. Every `send` asks for it: a look-up, and no call of ours."""
    _layouts: dict[str, TopicLayout] = field(default_factory=dict)
    _pinned: dict[str, str] = field(default_factory=dict)
    """The uids of topics in which a consumer has positions."""

    def __post_init__(self) -> None:
        self.routes = Routes(self.servers.urls, self.servers.reaches_leaders, self.servers.sends_to)
        self.newest = self._layouts.get

    # -- topics ------------------------------------------------------------------------------------------------------

    def fresh(self, topic: str, now_ms: int) -> TopicLayout | None:
        """Return the layout of a topic. None: a broker must be asked."""
        known = self._layouts.get(topic)
        return known if known is not None and not known.is_old(now_ms) else None

    def learn(self, topic: str, answer: Answer, now_ms: int) -> TopicLayout:
        """Keep a broker's answer. Raises StaleTopicError where positions belong to an older topic of the name."""
        layout = TopicLayout.parse(parse_json(answer.body), now_ms)
        if layout.uid != self._pinned.get(topic, layout.uid):
            raise StaleTopicError(
                f"{topic} was deleted and created again: positions in the old one mean nothing in the new one;"
                " make a new Consumer"
            )
        self._layouts[topic] = layout
        self.routes.learn(layout)
        return layout

    def pin(self, layout: TopicLayout) -> TopicLayout:
        """Pin the topic: from now on, one of this name that was created again is a StaleTopicError."""
        self._pinned.setdefault(layout.topic, layout.uid)
        return layout

    def pin_anew(self, topic: str, uid: str) -> None:
        """Pin another topic: from now on positions belong to this topic of the name."""
        known = self._layouts.get(topic)
        if known is not None and known.uid != uid:
            self.forget(topic)
        self._pinned[topic] = uid

    def forget(self, topic: str) -> None:
        """Ask a broker before the metadata of `topic` is used next."""
        self._layouts.pop(topic, None)

    def check_partition(self, layout: TopicLayout, partition: TopicPartition) -> None:
        """Raise UnknownPartitionError for a number that the topic does not have."""
        count = len(layout.partitions)
        if partition.partition < count:
            return
        # The partition may have been added since. If not, the next answer must not come from old metadata either.
        self.forget(layout.topic)
        raise UnknownPartitionError(
            f"partition {partition.partition} of {layout.topic} does not exist: it has {count}, numbered from 0",
            partitions=count,
        )

    # -- the way there -----------------------------------------------------------------------------------------------

    def url_for(self, call: Call, now_ms: int) -> str:
        return self.routes.choose(call.leader_url, now_ms)

    def leader_url(self, layout: TopicLayout, partition: int, now_ms: int) -> str | None:
        """Return the URL of the leader itself; None where only requests lead there, which other brokers pass on."""
        url = layout.partitions[partition].leader_url
        reached = url is not None and self.servers.reaches_leaders and self.routes.choose(url, now_ms) == url
        return url if reached else None

    def headers_of(self, call: Call) -> Mapping[str, str]:
        return {**self.servers.headers, **call.headers}

    def answered(self, url: str, answer: Answer) -> None:
        """Note that the URL has answered. Raises the error of the answer."""
        self.routes.answered(url)
        check(answer, url)

    def unreachable(self, url: str, error: BrokerUnreachableError, now_ms: int) -> BrokerUnreachableError:
        """Return the error to raise. No retry helps against a certificate without trust, but another broker may."""
        self.routes.failed(url, now_ms)
        if isinstance(error, UntrustedBrokerError) and self.routes.has_other(now_ms):
            return BrokerUnreachableError(error.message, **error.details)
        return error
