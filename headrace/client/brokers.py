"""The brokers as a client sees them: metadata, produce, fetch and offsets, each to the right URL.

Owns the transport and what is known of topics and URLs, for the lifetime of one producer or consumer; used from several
threads. A request goes to the partition's leader, or through another broker while the leader's URL cannot be reached.
`*_once` methods try once and raise; the callers' retry policies decide what comes next. `retrying` is that loop for
callers who can only wait.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from random import Random
from typing import Any, TypeVar, assert_never
from urllib.parse import quote, urlencode

from headrace.client.discovery import Servers, find_servers
from headrace.client.layout import PartitionLayout, Routes, TopicLayout
from headrace.client.record import TopicPartition
from headrace.client.retry import Failure, GiveUp, RetryPolicy, TryAgain
from headrace.client.workers import Workers
from headrace.core.errors import (
    BrokerUnreachableError,
    HeadraceError,
    LocalError,
    RemoteError,
    StaleTopicError,
    UnknownPartitionError,
    UnknownTopicError,
)
from headrace.core.limits import METADATA_TIMEOUT_MS, OFFSET_REQUESTS_MAX, UNKNOWN_TOPIC_GRACE_MS
from headrace.core.problem import from_problem
from headrace.http2.blocking import BlockingTransport, Response

BATCH_TYPE = "application/vnd.headrace.batch"
DEFAULT_NAMESPACE = "default"
_ANSWER_SLACK_S = 2.0
"""A broker that keeps its own time limit gets this much longer to say so."""

T = TypeVar("T")
Buffers = Sequence[bytes | memoryview]


def now_ms() -> int:
    """Of a clock that never goes back: for waits and time limits."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Fetched:
    body: bytes
    """Whole batches, one after the other; the first may begin below the offset that was asked for."""
    next_offset: int


class Brokers:
    def __init__(
        self,
        server: str | Servers | None,
        namespace: str | None,
        *,
        ca_file: str | None = None,
        timeout_ms: int,
        request_timeout_ms: int,
    ) -> None:
        """Raises NoServerError with the remedy; connects to nobody yet."""
        servers = find_servers(server, ca_file)
        self.namespace = namespace or DEFAULT_NAMESPACE
        self.closed = threading.Event()
        self._headers = servers.headers
        self._routes = Routes(servers.urls, servers.reaches_leaders)
        self._request_timeout_ms = request_timeout_ms
        self._policy = RetryPolicy(timeout_ms)
        self._new_topic_policy = RetryPolicy(min(timeout_ms, UNKNOWN_TOPIC_GRACE_MS), (UnknownTopicError,))
        self._random = Random()
        self._transport = BlockingTransport(servers.ssl_context)
        self._layouts: dict[str, TopicLayout] = {}
        self._pinned: dict[str, str] = {}
        """Uids of topics in which somebody has positions."""
        self._reading_metadata = threading.Lock()

    def close(self) -> None:
        self.closed.set()
        self._transport.close()

    def retrying(self, what: str, once: Callable[[], T], topic: str | None = None) -> T:
        """`once()` until it succeeds or the retry policy gives up; between attempts `topic`'s metadata is dropped."""
        attempts, since_ms = 0, now_ms()
        while True:
            try:
                return once()
            except HeadraceError as error:
                attempts += 1
                policy = self._new_topic_policy if isinstance(error, UnknownTopicError) else self._policy
                decision = policy.decide(Failure(what, error, attempts, since_ms), now_ms(), self._random)
            match decision:
                case GiveUp(last):
                    raise last
                case TryAgain(at_ms, refresh):
                    if refresh and topic is not None:
                        self.forget(topic)
                    if self.closed.wait(max(0, at_ms - now_ms()) / 1000):
                        raise LocalError(f"{what}: closed meanwhile")
                case _:
                    assert_never(decision)

    # -- metadata ----------------------------------------------------------------------------------------------------

    def layout(self, topic: str) -> TopicLayout:
        """What is known of `topic`; asks a broker, for as long as the time limit allows, when nothing is."""
        known = self._known(topic)
        if known is not None:
            return known
        return self.retrying(f"the metadata of {topic}", lambda: self.layout_once(topic))

    def pin(self, topic: str) -> TopicLayout:
        """As `layout`; from now on a topic of this name that was created again is a StaleTopicError."""
        layout = self.layout(topic)
        self._pinned.setdefault(topic, layout.uid)
        return layout

    def known_layout(self, topic: str) -> TopicLayout | None:
        """The newest metadata of `topic`, however old; asks nobody."""
        return self._layouts.get(topic)

    def layout_once(self, topic: str) -> TopicLayout:
        """As `layout`, with one attempt. Raises UnknownTopicError, BrokerUnreachableError."""
        known = self._known(topic)
        if known is not None:
            return known
        with self._reading_metadata:
            known = self._known(topic)  # Another thread may have asked meanwhile.
            if known is not None:
                return known
            answer = self._ask_anyone(self._topic_path(topic))
            layout = TopicLayout.parse(parse_json(answer.body), now_ms())
            if layout.uid != self._pinned.get(topic, layout.uid):
                raise StaleTopicError(
                    f"{topic} was deleted and created again: positions in the old one mean nothing in the new one;"
                    " make a new Consumer"
                )
            self._layouts[topic] = layout
            self._routes.learn(layout)
            return layout

    def _known(self, topic: str) -> TopicLayout | None:
        known = self._layouts.get(topic)
        return known if known is not None and not known.is_old(now_ms()) else None

    def forget(self, topic: str) -> None:
        """Read the metadata of `topic` again before it is used next."""
        self._layouts.pop(topic, None)

    def cluster(self) -> dict[str, Any]:
        """GET /v1/cluster: the brokers, with id, url, zone, state and incarnation."""
        return self.retrying("the state of the cluster", lambda: parse_json(self._ask_anyone("/v1/cluster").body))

    # -- partitions --------------------------------------------------------------------------------------------------

    def produce_once(self, partition: TopicPartition, batch: Buffers, acks: str) -> int:
        """Write one encoded batch; its base offset, -1 with acks=0."""
        query: dict[str, str | int] = {"acks": acks, "timeoutMs": self._request_timeout_ms}
        answer = self._on_partition("POST", partition, "records", query, batch)
        offset = parse_json(answer.body).get("baseOffset", -1)
        return int(offset)

    def fetch_once(self, partition: TopicPartition, offset: int, *, max_bytes: int, wait_ms: int) -> Fetched:
        """Whole batches from `offset` on; empty when nothing new came within `wait_ms`."""
        query = {"offset": offset, "maxBytes": max_bytes, "maxWaitMs": wait_ms}
        answer = self._on_partition("GET", partition, "records", query, wait_ms=wait_ms)
        return Fetched(answer.body, int(answer.headers["headrace-next-offset"]))

    def offsets(self, partitions: Sequence[TopicPartition], timestamp: str | int) -> dict[TopicPartition, int]:
        """Of the first record at or after `timestamp` (`earliest`, `latest`, or ms) in each; the end where none is."""
        answers: SimpleQueue[tuple[TopicPartition, int | Exception]] = SimpleQueue()
        # Not an executor: that would make Ctrl-C wait until every look-up has given up.
        workers = Workers("headrace-offsets", OFFSET_REQUESTS_MAX)
        for partition in partitions:
            workers.submit(partial(self._look_up, timestamp, partition, answers.put))
        workers.stop()
        found: dict[TopicPartition, int] = {}
        for _ in partitions:
            partition, offset = answers.get()
            if isinstance(offset, Exception):
                raise offset
            found[partition] = offset
        return {partition: found[partition] for partition in partitions}

    def _look_up(
        self,
        timestamp: str | int,
        partition: TopicPartition,
        tell: Callable[[tuple[TopicPartition, int | Exception]], None],
    ) -> None:
        try:
            tell((partition, self._offset(timestamp, partition)))
        except Exception as error:
            tell((partition, error))

    def _offset(self, timestamp: str | int, partition: TopicPartition) -> int:
        def once() -> int:
            found = self._offset_once(partition, timestamp)
            return self._offset_once(partition, "latest") or 0 if found is None else found

        return self.retrying(f"the offsets of {partition}", once, partition.topic)

    def _offset_once(self, partition: TopicPartition, timestamp: str | int) -> int | None:
        answer = self._on_partition("GET", partition, "offsets", {"timestamp": timestamp})
        offset = parse_json(answer.body)["offset"]
        return None if offset is None else int(offset)

    def _on_partition(
        self,
        method: str,
        partition: TopicPartition,
        resource: str,
        query: Mapping[str, str | int],
        batch: Buffers = (),
        wait_ms: int = 0,
    ) -> Response:
        topic, number = partition
        layout = self.layout_once(topic)
        place = self._place(layout, number)
        parameters: dict[str, str | int] = {**query, "topicUid": layout.uid}
        if place.leader_url is not None:
            parameters["leaderEpoch"] = place.leader_epoch
        path = f"{self._topic_path(topic)}/partitions/{number}/{resource}?{urlencode(parameters)}"
        timeout_ms = self._request_timeout_ms + wait_ms
        return self._request(method, place.leader_url, path, batch, timeout_ms=timeout_ms)

    def _place(self, layout: TopicLayout, partition: int) -> PartitionLayout:
        if partition < len(layout.partitions):
            return layout.partitions[partition]
        # It may have been added since; and if not, what comes next must not be told from old metadata.
        self.forget(layout.topic)
        count = len(layout.partitions)
        raise UnknownPartitionError(
            f"partition {partition} of {layout.topic} does not exist: it has {count}, numbered from 0", partitions=count
        )

    def _topic_path(self, topic: str) -> str:
        return f"/v1/namespaces/{quote(self.namespace, safe='')}/topics/{quote(topic, safe='')}"

    def _ask_anyone(self, path: str) -> Response:
        return self._request("GET", None, path, timeout_ms=min(METADATA_TIMEOUT_MS, self._request_timeout_ms))

    def _request(
        self, method: str, leader_url: str | None, path: str, batch: Buffers = (), *, timeout_ms: int
    ) -> Response:
        url = self._routes.choose(leader_url, now_ms())
        form = {"content-type": BATCH_TYPE} if batch else {"accept": f"{BATCH_TYPE}, application/json"}
        headers = {**self._headers, **form}
        timeout_s = timeout_ms / 1000 + _ANSWER_SLACK_S
        try:
            answer = self._transport.request(method, url + path, headers=headers, body=batch, timeout_s=timeout_s)
        except BrokerUnreachableError:
            self._routes.failed(url, now_ms())
            raise
        self._routes.answered(url)
        if answer.status >= 400:
            raise _error_of(answer, url)
        return answer


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises RemoteError for anything else."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise RemoteError("the server's answer is no JSON object: is it a Headrace broker?")
    return document


def _error_of(answer: Response, url: str) -> HeadraceError:
    try:
        document = parse_json(answer.body)
    except RemoteError:
        document = {"detail": f"{url} answers without a problem document: is it a Headrace broker?"}
    error = from_problem(document, answer.status)
    wait_s = answer.headers.get("retry-after", "")
    if wait_s.isdecimal():
        error.details.setdefault("retryAfterMs", int(wait_s) * 1000)
    return error
