"""The questions that a client asks brokers: metadata, produce, fetch and offsets. No I/O, no thread, no event loop.

An errand is a generator: it yields a step, is sent the result (or thrown the error), and decides what is next.
`Brokers.run` carries steps out with threads, `AsyncBrokers.run` on an event loop; everything else is written here once.
An errand that asks no broker returns at once.

    RequestStep   one request and its whole response        PauseStep   wait, or hear that the client was closed
    Alone         an errand while no other holds its lock   Each        several errands, some at a time
    Connect       a stream to a broker, for a session       Here        some work of the errand's owner

A request goes to the partition's leader, or through another broker while the leader's URL cannot be reached. The
`*_once` errands try once and raise; the callers' retry policies decide what comes next. `retrying` is that loop for
callers that can only wait. `BrokerErrands` is the base of both faces; each producer and each consumer owns one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from headrace.client.clock import now_ms
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.calls import Buffers, Call, Calls, Directory, Fetched, as_namespace
from headrace.client.transport.discovery import Servers, find_servers
from headrace.client.transport.metadata import TopicLayout
from headrace.client.transport.retry import Retries, Trouble, changes_layout
from headrace.core.errors import BrokerUnreachableError, HeadraceError, LocalError
from headrace.core.frames.session_messages import SESSION_MEDIA_TYPE
from headrace.http2.exchange import Decode, Response
from headrace.http2.origin import Attempts

T = TypeVar("T")

Errand: TypeAlias = Generator[Any, Any, T]
"""A generator that yields `Step`s, and returns the errand's result."""
B = TypeVar("B", bound="BrokerErrands")
"""The face of an errand's owner."""


class Step(ABC):
    """A step of an errand, which a face carries out."""

    @abstractmethod
    def by(self, face: "BrokerErrands") -> Any:
        """Let the face do it, and return its result, or on an event loop its awaitable."""


@dataclass(frozen=True, slots=True)
class RequestStep(Step):
    """A request to this URL; it gives the Response, of any status. Raises BrokerUnreachableError."""

    url: str
    call: Call

    def by(self, face: "BrokerErrands") -> Any:
        return face.exchange(self.url, self.call)


@dataclass(frozen=True, slots=True)
class PauseStep(Step):
    """Wait until then; it gives True where the client is closed before that."""

    until_ms: int

    def by(self, face: "BrokerErrands") -> Any:
        return face.pause(max(0, self.until_ms - now_ms()) / 1000)


@dataclass(frozen=True, slots=True)
class Alone(Step):
    """Carry out the errand with the lock (of `new_lock` or `new_turns`), and give its result."""

    lock: Any
    errand: Errand[Any]

    def by(self, face: "BrokerErrands") -> Any:
        return face.alone(self.lock, self.errand)


@dataclass(frozen=True, slots=True)
class Each(Step):
    """Carry out these errands, OFFSET_REQUESTS_MAX at a time; it gives their results in order, or raises the first
    failure.
    """

    errands: Sequence[Errand[Any]]

    def by(self, face: "BrokerErrands") -> Any:
        return face.each(self.errands)


@dataclass(frozen=True, slots=True)
class Connect(Step):
    """Open a stream to the broker of `session`; `listener` is told what comes, and why it ends."""

    session: "SessionPort"
    listener: "Listener"

    def by(self, face: "BrokerErrands") -> Any:
        return face.connect(self.session, self.listener)


@dataclass(frozen=True, slots=True)
class Here(Step):
    """Work of the errand's owner: `work` gives its result, or on an event loop its awaitable."""

    work: Callable[[], Any]

    def by(self, face: "BrokerErrands") -> Any:
        return self.work()


class Course(Generic[T]):
    """An errand under way: `step` is to be carried out next; it is None when the errand is over and gave `result`."""

    result: T

    def __init__(self, errand: Errand[T]) -> None:
        self._errand = errand
        self.step: Any = None
        self.done(None)

    def done(self, result: Any) -> None:
        """Give the errand the result of the step; it decides what is next. Raises what it raises."""
        try:
            self.step = self._errand.send(result)
        except StopIteration as ended:
            self.step, self.result = None, ended.value

    def failed(self, error: BaseException) -> None:
        """Throw the error of the step into the errand. Raises what the errand raises."""
        try:
            self.step = self._errand.throw(error)
        except StopIteration as ended:
            self.step, self.result = None, ended.value


class SessionPort(Protocol):
    url: str

    @property
    def decode(self) -> Decode: ...


class StreamPort(Protocol):
    """The stream of a session. `send` never waits."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def send(self, *buffers: Any) -> None: ...
    def cancel(self) -> None: ...


class Listener(Protocol):
    def arrived(self, session: Any, stream: Any, chunks: list[Any]) -> None:
        """Take what `session.decode` returned for the bytes that came, or pieces of the body of an error answer."""

    def ended(self, session: Any, stream: Any, error: HeadraceError | None = None) -> None:
        """Hear that nothing more comes: the stream broke by `error`, or its answer is complete."""

    def cancelled(self, session: Any) -> None:
        """Hear that the task that reads the stream was cancelled from outside."""


def alone(lock: Any, errand: Errand[T]) -> Errand[T]:
    """Carry out the errand with that lock."""
    result: T = yield Alone(lock, errand)
    return result


class BrokerErrands(ABC):
    def __init__(
        self,
        server: str | Servers | None,
        namespace: str | None,
        *,
        ca_file: str | None = None,
        timeout_ms: int,
        request_timeout_ms: int,
    ) -> None:
        """Find the servers, without a connection and without a running loop. Raises NoServerError with the remedy."""
        self.directory = Directory(find_servers(server, ca_file))
        self.trouble = Trouble()
        self.namespace = as_namespace(namespace)
        self.request_timeout_ms = request_timeout_ms
        self._calls = Calls(self.namespace, request_timeout_ms)
        self._timeout_ms = timeout_ms
        self._random = Random()
        self._reading_metadata = self.new_lock()
        self._metadata_attempts = Attempts()
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Make the objects that the face needs for its steps."""

    @abstractmethod
    def new_lock(self) -> Any:
        """Return a lock for `Alone`."""

    @abstractmethod
    def new_turns(self, limit: int) -> Any:
        """Return a lock that so many may hold."""

    @abstractmethod
    def new_guard(self) -> AbstractContextManager[Any]:
        """Return a lock for state that several threads change; on an event loop, which needs none, it does nothing."""

    @abstractmethod
    def exchange(self, url: str, call: Call) -> Any:
        """Carry out a `RequestStep`; the methods below carry out the other steps."""

    @abstractmethod
    def pause(self, seconds: float) -> Any: ...

    @abstractmethod
    def alone(self, lock: Any, errand: Errand[Any]) -> Any: ...

    @abstractmethod
    def each(self, errands: Sequence[Errand[Any]]) -> Any: ...

    @abstractmethod
    def connect(self, session: SessionPort, listener: Listener) -> Any: ...

    @property
    def session_headers(self) -> dict[str, str]:
        return {**self.directory.servers.headers, "content-type": SESSION_MEDIA_TYPE}

    def retrying(
        self, what: str, once: Callable[[], Errand[T]], topic: str | None = None, *, timeout_ms: int | None = None
    ) -> Errand[T]:
        """Call `once()` until it succeeds or the retry policy gives up; it drops `topic`'s metadata between attempts.

        Without `timeout_ms` the client's own time limit counts.
        """
        retries = Retries(what, self._timeout_ms if timeout_ms is None else timeout_ms, now_ms(), self.trouble)
        while True:
            try:
                return (yield from once())
            except HeadraceError as error:
                again = retries.failed(error, now_ms(), self._random)
            if again.refresh and topic is not None:
                self.directory.forget(topic)
            if (yield PauseStep(again.at_ms)):
                raise LocalError(f"{what}: closed meanwhile")

    # -- metadata ----------------------------------------------------------------------------------------------------

    def layout(self, topic: str) -> Errand[TopicLayout]:
        """Return the layout of `topic`; if it is not known, ask a broker for as long as the time limit allows."""
        known = self.directory.fresh(topic, now_ms())
        if known is not None:
            return known
        return (yield from self.retrying(f"the metadata of {topic}", partial(self.layout_once, topic)))

    def layout_once(self, topic: str) -> Errand[TopicLayout]:
        """Return what `layout` returns, with one attempt. Raises UnknownTopicError, BrokerUnreachableError."""
        known = self.directory.fresh(topic, now_ms())
        if known is not None:
            return known
        failures = self._metadata_attempts.failures
        return (yield from alone(self._reading_metadata, self._read_metadata(topic, failures)))

    def _read_metadata(self, topic: str, failures: int) -> Errand[TopicLayout]:
        known = self.directory.fresh(topic, now_ms())  # Another errand may have asked meanwhile.
        if known is not None:
            return known
        self._metadata_attempts.check_since(failures)
        try:
            answer = yield from self.request_once(self._calls.topic(topic))
        except BrokerUnreachableError as error:
            self._metadata_attempts.failed(error)
            raise
        return self.directory.learn(topic, answer, now_ms())

    def layout_with(self, partition: TopicPartition) -> Errand[TopicLayout]:
        """Return the layout of the partition's topic. Raises UnknownPartitionError too."""
        layout = yield from self.layout_once(partition.topic)
        self.directory.check_partition(layout, partition)
        return layout

    def ask_who_leads(self, topic: str) -> Errand[None]:
        """Read the metadata anew, once, known or not; known metadata stays until then. Raises as `layout_once` does."""
        answer = yield from self.request_once(self._calls.topic(topic))
        self.directory.learn(topic, answer, now_ms())

    def topics(self) -> Errand[list[str]]:
        """Return the names of the namespace's topics."""
        what = f"the topics of namespace {self.namespace}"
        answer = yield from self.retrying(what, partial(self.request_once, self._calls.topics()))
        return calls.topic_names(answer)

    def cluster(self) -> Errand[dict[str, Any]]:
        """Return the answer to GET /v1/cluster: the brokers, with id, url, zone, state and incarnation."""
        answer = yield from self.retrying("the state of the cluster", partial(self.request_once, self._calls.cluster()))
        return calls.parse_json(answer.body)

    def held_once(self, broker: int) -> Errand[dict[str, Any]]:
        """Return the answer to GET /v1/brokers/{broker}/held: what it holds, which epochs it knows. One attempt."""
        answer = yield from self.request_once(self._calls.held(broker))
        return calls.parse_json(answer.body)

    # -- partitions --------------------------------------------------------------------------------------------------

    def produce_once(self, partition: TopicPartition, batch: Buffers, acks: str) -> Errand[int]:
        """Write one encoded batch, and return its base offset, -1 with acks=0."""
        layout = yield from self.layout_with(partition)
        answer = yield from self.request_once(self._calls.produce(layout, partition.partition, batch, acks))
        return calls.base_offset(answer)

    def fetch_once(self, partition: TopicPartition, offset: int, *, max_bytes: int, wait_ms: int) -> Errand[Fetched]:
        """Return whole batches from `offset` on; none when no record came within `wait_ms`."""
        layout = yield from self.layout_with(partition)
        call = self._calls.fetch(layout, partition.partition, offset, max_bytes=max_bytes, wait_ms=wait_ms)
        answer = yield from self.request_once(call)
        return calls.fetched(answer, partition)

    def offsets(self, partitions: Sequence[TopicPartition], timestamp: str | int) -> Errand[dict[TopicPartition, int]]:
        """Return the offset of the first record at or after `timestamp` (`earliest`, `latest`, or ms) in each; the end
        where there is none.
        """
        found = yield Each([self.offset(partition, timestamp) for partition in partitions])
        return dict(zip(partitions, found, strict=True))

    def offsets_once(
        self, partitions: Sequence[TopicPartition], timestamp: str | int, timeout_ms: int
    ) -> Errand[dict[TopicPartition, int | HeadraceError]]:
        """Return what `offsets` returns, by one attempt for each within this time; the error where that failed."""
        found = yield Each([self._offset_or_error(partition, timestamp, timeout_ms) for partition in partitions])
        return dict(zip(partitions, found, strict=True))

    def offset(self, partition: TopicPartition, timestamp: str | int) -> Errand[int]:
        """Return what `offsets` returns, for one partition."""
        once = partial(self._offset_or_end_once, partition, timestamp, self.request_timeout_ms)
        return (yield from self.retrying(f"the offsets of {partition}", once, partition.topic))

    def _offset_or_error(
        self, partition: TopicPartition, timestamp: str | int, timeout_ms: int
    ) -> Errand[int | HeadraceError]:
        try:
            return (yield from self._offset_or_end_once(partition, timestamp, timeout_ms))
        except HeadraceError as error:
            if changes_layout(error):
                self.directory.forget(partition.topic)
            return error

    def _offset_or_end_once(self, partition: TopicPartition, timestamp: str | int, timeout_ms: int) -> Errand[int]:
        found = yield from self._offset_once(partition, timestamp, timeout_ms)
        if found is None:
            found = yield from self._offset_once(partition, "latest", timeout_ms)
        return found or 0

    def _offset_once(self, partition: TopicPartition, timestamp: str | int, timeout_ms: int) -> Errand[int | None]:
        layout = yield from self.layout_with(partition)
        call = self._calls.offset(layout, partition.partition, timestamp)
        answer = yield from self.request_once(replace(call, timeout_ms=min(call.timeout_ms, timeout_ms)))
        return calls.offset(answer)

    def request_once(self, call: Call) -> Errand[Response]:
        """Send the call and return the response, with one attempt."""
        url = self.directory.url_for(call, now_ms())
        try:
            answer: Response = yield RequestStep(url, call)
        except BrokerUnreachableError as error:
            raise self.directory.unreachable(url, error, now_ms()) from error.__cause__
        self.directory.answered(url, answer)
        return answer
