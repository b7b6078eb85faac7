"""The brokers as a blocking client sees them: metadata, produce, fetch and offsets, each sent to the right URL.

`Brokers` owns the transport and what is known of topics and URLs, for the lifetime of one producer or consumer; several
threads use it. A request goes to the partition's leader, or through another broker while the leader's URL cannot be
reached. `*_once` methods try once and raise; the callers' retry policies decide what comes next. `retrying` is that
loop for callers that can only wait.

`Workers` are threads that wait for answers: one per request in flight, started when needed, up to a limit. Unlike
those of `concurrent.futures` they are daemon threads, so a program that forgets to close its consumer still ends, and
one that forgets to close its producer can still send what it has at its exit.

Commands load this module without arrays: it imports neither NumPy nor pyarrow, and no sessions.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from random import Random
from typing import Any, TypeVar

from headrace.client.clock import now_ms
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.calls import Buffers, Call, Calls, Directory, Fetched, as_namespace
from headrace.client.transport.discovery import Servers, find_servers
from headrace.client.transport.metadata import TopicLayout
from headrace.client.transport.retry import Retries, Trouble, changes_layout
from headrace.core.errors import BrokerUnreachableError, HeadraceError, LocalError
from headrace.core.frames.session_messages import SESSION_MEDIA_TYPE
from headrace.core.limits import OFFSET_REQUESTS_MAX
from headrace.http2.blocking_transport import BlockingStream, BlockingTransport, Response
from headrace.http2.exchange import Decode
from headrace.http2.interrupts import HeldInterrupts
from headrace.http2.origin import Attempts


class Workers:
    def __init__(self, name: str, limit: int) -> None:
        self._name, self._limit = name, limit
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0
        """Tasks that run or wait to be run."""

    def submit(self, task: Callable[[], None]) -> None:
        """Run `task`, which never raises, on some thread; it waits while `limit` others run.

        Where no thread is to be had (Python 3.12 starts none while it ends), the caller works.
        """
        with HeldInterrupts():  # The threads that are counted are those that are there.
            with self._lock:
                self._busy += 1
                start = self._busy > self._threads and self._threads < self._limit
                self._threads += start
            self._tasks.put(task)
            is_worked_on = not start or self._start()
        if not is_worked_on:
            with suppress(Empty):  # Another thread may have taken it.
                self._run(self._tasks.get_nowait())

    def _start(self) -> bool:
        """False: no thread is to be had."""
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._threads -= 1
            return False
        return True

    def stop(self) -> None:
        """Let every thread end after the task that it runs."""
        with HeldInterrupts():
            for _ in range(self._threads):
                self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._run(task)
            del task  # An idle thread keeps no batch alive.

    def _run(self, task: Callable[[], None] | None) -> None:
        assert task is not None, "nothing is submitted after stop"
        task()
        with self._lock:
            self._busy -= 1


T = TypeVar("T")


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
        self.directory = Directory(find_servers(server, ca_file))
        self.trouble = Trouble()
        self.closed = threading.Event()
        self.namespace = as_namespace(namespace)
        self.request_timeout_ms = request_timeout_ms
        self._calls = Calls(self.namespace, request_timeout_ms)
        self._timeout_ms = timeout_ms
        self._random = Random()
        self._transport = BlockingTransport(self.directory.servers.ssl_context)
        self._reading_metadata = threading.Lock()
        self._metadata_attempts = Attempts()

    def close(self) -> None:
        self.closed.set()
        self._transport.close()

    def retrying(
        self, what: str, once: Callable[[], T], topic: str | None = None, *, timeout_ms: int | None = None
    ) -> T:
        """`once()` until it succeeds or the retry policy gives up; between attempts `topic`'s metadata is dropped.

        Without `timeout_ms` the client's own time limit counts.
        """
        retries = Retries(what, self._timeout_ms if timeout_ms is None else timeout_ms, now_ms(), self.trouble)
        while True:
            try:
                return once()
            except HeadraceError as error:
                again = retries.failed(error, now_ms(), self._random)
            if again.refresh and topic is not None:
                self.directory.forget(topic)
            if self.closed.wait(max(0, again.at_ms - now_ms()) / 1000):
                raise LocalError(f"{what}: closed meanwhile")

    # -- metadata ----------------------------------------------------------------------------------------------------

    def layout(self, topic: str) -> TopicLayout:
        """What is known of `topic`; asks a broker, for as long as the time limit allows, when nothing is."""
        known = self.directory.fresh(topic, now_ms())
        if known is not None:
            return known
        return self.retrying(f"the metadata of {topic}", lambda: self.layout_once(topic))

    def layout_once(self, topic: str) -> TopicLayout:
        """As `layout`, with one attempt. Raises UnknownTopicError, BrokerUnreachableError."""
        known = self.directory.fresh(topic, now_ms())
        if known is not None:
            return known
        failures = self._metadata_attempts.failures
        with self._reading_metadata:
            known = self.directory.fresh(topic, now_ms())  # Another thread may have asked meanwhile.
            if known is not None:
                return known
            self._metadata_attempts.check_since(failures)
            try:
                answer = self._request(self._calls.topic(topic))
            except BrokerUnreachableError as error:
                self._metadata_attempts.failed(error)
                raise
            return self.directory.learn(topic, answer, now_ms())

    def topics(self) -> list[str]:
        """Names of the namespace's topics."""
        call = self._calls.topics()
        what = f"the topics of namespace {self.namespace}"
        return self.retrying(what, lambda: calls.topic_names(self._request(call)))

    def cluster(self) -> dict[str, Any]:
        """GET /v1/cluster: the brokers, with id, url, zone, state and incarnation."""
        call = self._calls.cluster()
        return self.retrying("the state of the cluster", lambda: calls.parse_json(self._request(call).body))

    def held_once(self, broker: int) -> dict[str, Any]:
        """GET /v1/brokers/{broker}/held, with one attempt: what it holds, and which epochs it knows."""
        return calls.parse_json(self._request(self._calls.held(broker)).body)

    def ask_who_leads(self, topic: str) -> None:
        """Read the metadata anew, once, whatever is known; what is known stays until then. Raises as `layout_once`."""
        self.directory.learn(topic, self._request(self._calls.topic(topic)), now_ms())

    # -- partitions --------------------------------------------------------------------------------------------------

    def produce_once(self, partition: TopicPartition, batch: Buffers, acks: str) -> int:
        """Write one encoded batch; its base offset, -1 with acks=0."""
        layout = self.layout_with(partition)
        return calls.base_offset(self._request(self._calls.produce(layout, partition.partition, batch, acks)))

    def open_session(self, url: str, listener: Callable[[BlockingStream], None], decode: Decode) -> BlockingStream:
        """A session with this broker; `listener` hears of all that happens in it, and takes what `decode` makes."""
        headers = {**self.directory.servers.headers, "content-type": SESSION_MEDIA_TYPE}
        try:
            return self._transport.open(
                "POST", url + calls.SESSIONS_PATH, headers=headers, listener=listener, decode=decode
            )
        except BrokerUnreachableError as error:
            raise self.directory.unreachable(url, error, now_ms()) from error.__cause__

    def fetch_once(self, partition: TopicPartition, offset: int, *, max_bytes: int, wait_ms: int) -> Fetched:
        """Whole batches from `offset` on; empty when nothing new came within `wait_ms`."""
        layout = self.layout_with(partition)
        call = self._calls.fetch(layout, partition.partition, offset, max_bytes=max_bytes, wait_ms=wait_ms)
        return calls.fetched(self._request(call), partition)

    def offsets(self, partitions: Sequence[TopicPartition], timestamp: str | int) -> dict[TopicPartition, int]:
        """Of the first record at or after `timestamp` (`earliest`, `latest`, or ms) in each; the end where none is."""
        found: dict[TopicPartition, int] = {}
        for partition, offset in self._each(partitions, partial(self.offset, timestamp=timestamp)):
            if isinstance(offset, Exception):
                raise offset
            found[partition] = offset
        return {partition: found[partition] for partition in partitions}

    def offsets_once(
        self, partitions: Sequence[TopicPartition], timestamp: str | int, timeout_ms: int
    ) -> dict[TopicPartition, int | HeadraceError]:
        """As `offsets`, with one attempt for each, and no longer than this; where that failed, why."""
        found: dict[TopicPartition, int | HeadraceError] = {}
        once = partial(self._offset_or_end_once, timestamp=timestamp, timeout_ms=timeout_ms)
        for partition, offset in self._each(partitions, once):
            if isinstance(offset, Exception) and not isinstance(offset, HeadraceError):
                raise offset
            found[partition] = offset
            if isinstance(offset, HeadraceError) and changes_layout(offset):
                self.directory.forget(partition.topic)
        return found

    def _each(
        self, partitions: Sequence[TopicPartition], look_up: Callable[[TopicPartition], int]
    ) -> Iterator[tuple[TopicPartition, int | Exception]]:
        """As they come, some at a time."""
        answers: SimpleQueue[tuple[TopicPartition, int | Exception]] = SimpleQueue()
        # Not an executor: that would make Ctrl-C wait until every look-up has given up.
        workers = Workers("headrace-offsets", OFFSET_REQUESTS_MAX)
        with HeldInterrupts() as interrupts:
            try:
                for partition in partitions:
                    interrupts.allowing(workers.submit, partial(_look_up, look_up, partition, answers.put))
            finally:  # Also after an interrupt no thread is left.
                workers.stop()
        for _ in partitions:
            yield answers.get()

    def offset(self, partition: TopicPartition, timestamp: str | int) -> int:
        """As `offsets`, of one partition."""
        once = partial(self._offset_or_end_once, partition, timestamp, self.request_timeout_ms)
        return self.retrying(f"the offsets of {partition}", once, partition.topic)

    def _offset_or_end_once(self, partition: TopicPartition, timestamp: str | int, timeout_ms: int) -> int:
        found = self._offset_once(partition, timestamp, timeout_ms)
        return self._offset_once(partition, "latest", timeout_ms) or 0 if found is None else found

    def _offset_once(self, partition: TopicPartition, timestamp: str | int, timeout_ms: int) -> int | None:
        layout = self.layout_with(partition)
        call = self._calls.offset(layout, partition.partition, timestamp)
        return calls.offset(self._request(replace(call, timeout_ms=min(call.timeout_ms, timeout_ms))))

    def layout_with(self, partition: TopicPartition) -> TopicLayout:
        layout = self.layout_once(partition.topic)
        self.directory.check_partition(layout, partition)
        return layout

    def request_once(self, call: Call) -> Response:
        """With one attempt."""
        return self._request(call)

    def _request(self, call: Call) -> Response:
        url = self.directory.url_for(call, now_ms())
        headers = self.directory.headers_of(call)
        try:
            answer = self._transport.request(
                call.method, url + call.path, headers=headers, body=call.body, timeout_s=call.timeout_s
            )
        except BrokerUnreachableError as error:
            raise self.directory.unreachable(url, error, now_ms()) from error.__cause__
        self.directory.answered(url, answer)
        return answer


def _look_up(
    once: Callable[[TopicPartition], int],
    partition: TopicPartition,
    tell: Callable[[tuple[TopicPartition, int | Exception]], None],
) -> None:
    try:
        tell((partition, once(partition)))
    except Exception as error:
        tell((partition, error))
