"""The questions that a client asks brokers: metadata, produce, fetch and offsets. No I/O, no thread, no event loop.

An errand is a generator: it yields a step, is sent the result (or thrown the error), and decides what is next.
`Brokers.run` carries steps out with threads, `AsyncBrokers.run` on an event loop; everything else is written here once.
An errand that asks nobody returns at once.

    Exchange   one request and its whole response        Pause   wait, or hear that the client was closed
    Alone      an errand while no other holds its lock   Each    several errands, some at a time
    Connect    a stream to a broker, for a session       Here    something that the errand's owner does

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
"""It yields `Step`s, and gives what it returns."""


class Step(ABC):
    """Something that a face does for an errand."""

    @abstractmethod
    def by(self, face: "BrokerErrands") -> Any:
        """Have it done: what comes of it, or on an event loop its awaitable."""


@dataclass(frozen=True, slots=True)
class Exchange(Step):
    """A request to this URL; it gives the Response, of any status. Raises BrokerUnreachableError."""

    url: str
    call: Call

    def by(self, face: "BrokerErrands") -> Any:
        return face.exchange(self.url, self.call)


@dataclass(frozen=True, slots=True)
class Pause(Step):
    """Wait until then; it gives True where the client is closed by then, or meanwhile."""

    until_ms: int

    def by(self, face: "BrokerErrands") -> Any:
        return face.pause(max(0, self.until_ms - now_ms()) / 1000)


@dataclass(frozen=True, slots=True)
class Alone(Step):
    """Carry out the errand with the lock, and give its result: one of `new_lock`, or of `new_turns`."""

    lock: Any
    errand: Errand[Any]

    def by(self, face: "BrokerErrands") -> Any:
        return face.alone(self.lock, self.errand)


@dataclass(frozen=True, slots=True)
class Each(Step):
    """Carry out these, OFFSET_REQUESTS_MAX at a time; it gives their results in order. Raises the first failure."""

    errands: Sequence[Errand[Any]]

    def by(self, face: "BrokerErrands") -> Any:
        return face.each(self.errands)


@dataclass(frozen=True, slots=True)
class Connect(Step):
    """Open a stream to the broker of `session`; `listener` hears of what comes, and why it ends."""

    session: "Session"
    listener: "Listener"

    def by(self, face: "BrokerErrands") -> Any:
        return face.connect(self.session, self.listener)


@dataclass(frozen=True, slots=True)
class Here(Step):
    """Something that the errand's owner does: `work` gives what comes of it, or on an event loop its awaitable."""

    work: Callable[[], Any]

    def by(self, face: "BrokerErrands") -> Any:
        return self.work()


class Course(Generic[T]):
    """An errand under way: `step` is to be carried out next; None where it is over, and gave `result`."""

    result: T

    def __init__(self, errand: Errand[T]) -> None:
        self._errand = errand
        self.step: Any = None
        self.done(None)

    def done(self, result: Any) -> None:
        """The step gave this; the errand decides what is next. Raises what it raises."""
        try:
            self.step = self._errand.send(result)
        except StopIteration as ended:
            self.step, self.result = None, ended.value

    def failed(self, error: BaseException) -> None:
        """The step raised this. Raises what the errand raises."""
        try:
            self.step = self._errand.throw(error)
        except StopIteration as ended:
            self.step, self.result = None, ended.value


class Session(Protocol):
    url: str

    @property
    def decode(self) -> Decode: ...


class Stream(Protocol):
    """The stream of a session. `send` never waits."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def send(self, *buffers: Any) -> None: ...
    def cancel(self) -> None: ...


class Listener(Protocol):
    def arrived(self, session: Any, stream: Any, chunks: list[Any]) -> None:
        """What `session.decode` made of what came; pieces of its body where the answer is an error."""

    def ended(self, session: Any, stream: Any, error: HeadraceError | None = None) -> None:
        """Nothing more comes: the stream broke by `error`, or its answer is complete."""

    def cancelled(self, session: Any) -> None:
        """Somebody from outside has ended the reading of the stream."""


B = TypeVar("B", bound="BrokerErrands")
"""The face that an errand's owner has."""


def alone(lock: Any, errand: Errand[T]) -> Errand[T]:
    """The errand, with that lock."""
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
        """Raises NoServerError with the remedy; connects to nobody yet, and needs no running loop."""
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
        """Make what the face needs for its steps."""

    @abstractmethod
    def new_lock(self) -> Any:
        """A lock for `Alone`."""

    @abstractmethod
    def new_turns(self, limit: int) -> Any:
        """A lock that so many may hold."""

    @abstractmethod
    def new_guard(self) -> AbstractContextManager[Any]:
        """A lock for what several threads change; on an event loop, where nothing comes in between, it does nothing."""

    @abstractmethod
    def exchange(self, url: str, call: Call) -> Any:
        """Carry out an `Exchange`; the others likewise."""

    @abstractmethod
    def pause(self, seconds: float) -> Any: ...

    @abstractmethod
    def alone(self, lock: Any, errand: Errand[Any]) -> Any: ...

    @abstractmethod
    def each(self, errands: Sequence[Errand[Any]]) -> Any: ...

    @abstractmethod
    def connect(self, session: Session, listener: Listener) -> Any: ...

    @property
    def session_headers(self) -> dict[str, str]:
        return {**self.directory.servers.headers, "content-type": SESSION_MEDIA_TYPE}

    def retrying(
        self, what: str, once: Callable[[], Errand[T]], topic: str | None = None, *, timeout_ms: int | None = None
    ) -> Errand[T]:
        """`once()` until it succeeds or the retry policy gives up; between attempts `topic`'s metadata is dropped.

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
            if (yield Pause(again.at_ms)):
                raise LocalError(f"{what}: closed meanwhile")

    # -- metadata ----------------------------------------------------------------------------------------------------

    def layout(self, topic: str) -> Errand[TopicLayout]:
        """What is known of `topic`; asks a broker, for as long as the time limit allows, when nothing is."""
        known = self.directory.fresh(topic, now_ms())
        if known is not None:
            return known
        return (yield from self.retrying(f"the metadata of {topic}", partial(self.layout_once, topic)))

    def layout_once(self, topic: str) -> Errand[TopicLayout]:
        """As `layout`, with one attempt. Raises UnknownTopicError, BrokerUnreachableError."""
        known = self.directory.fresh(topic, now_ms())
        if known is not None:
            return known
        failures = self._metadata_attempts.failures
        return (yield from alone(self._reading_metadata, self._read_metadata(topic, failures)))

    def _read_metadata(self, topic: str, failures: int) -> Errand[TopicLayout]:
        known = self.directory.fresh(topic, now_ms())  # Somebody else may have asked meanwhile.
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
        """The layout of its topic. Raises UnknownPartitionError too."""
        layout = yield from self.layout_once(partition.topic)
        self.directory.check_partition(layout, partition)
        return layout

    def ask_who_leads(self, topic: str) -> Errand[None]:
        """Read the metadata anew, once, whatever is known; what is known stays until then. Raises as `layout_once`."""
        answer = yield from self.request_once(self._calls.topic(topic))
        self.directory.learn(topic, answer, now_ms())

    def topics(self) -> Errand[list[str]]:
        """Names of the namespace's topics."""
        what = f"the topics of namespace {self.namespace}"
        answer = yield from self.retrying(what, partial(self.request_once, self._calls.topics()))
        return calls.topic_names(answer)

    def cluster(self) -> Errand[dict[str, Any]]:
        """GET /v1/cluster: the brokers, with id, url, zone, state and incarnation."""
        answer = yield from self.retrying("the state of the cluster", partial(self.request_once, self._calls.cluster()))
        return calls.parse_json(answer.body)

    def held_once(self, broker: int) -> Errand[dict[str, Any]]:
        """GET /v1/brokers/{broker}/held, with one attempt: what it holds, and which epochs it knows."""
        answer = yield from self.request_once(self._calls.held(broker))
        return calls.parse_json(answer.body)

    # -- partitions --------------------------------------------------------------------------------------------------

    def produce_once(self, partition: TopicPartition, batch: Buffers, acks: str) -> Errand[int]:
        """Write one encoded batch; its base offset, -1 with acks=0."""
        layout = yield from self.layout_with(partition)
        answer = yield from self.request_once(self._calls.produce(layout, partition.partition, batch, acks))
        return calls.base_offset(answer)

    def fetch_once(self, partition: TopicPartition, offset: int, *, max_bytes: int, wait_ms: int) -> Errand[Fetched]:
        """Whole batches from `offset` on; empty when nothing new came within `wait_ms`."""
        layout = yield from self.layout_with(partition)
        call = self._calls.fetch(layout, partition.partition, offset, max_bytes=max_bytes, wait_ms=wait_ms)
        answer = yield from self.request_once(call)
        return calls.fetched(answer, partition)

    def offsets(self, partitions: Sequence[TopicPartition], timestamp: str | int) -> Errand[dict[TopicPartition, int]]:
        """Of the first record at or after `timestamp` (`earliest`, `latest`, or ms) in each; the end where none is."""
        found = yield Each([self.offset(partition, timestamp) for partition in partitions])
        return dict(zip(partitions, found, strict=True))

    def offsets_once(
        self, partitions: Sequence[TopicPartition], timestamp: str | int, timeout_ms: int
    ) -> Errand[dict[TopicPartition, int | HeadraceError]]:
        """As `offsets`, with one attempt for each, and no longer than this; where that failed, why."""
        found = yield Each([self._offset_or_error(partition, timestamp, timeout_ms) for partition in partitions])
        return dict(zip(partitions, found, strict=True))

    def offset(self, partition: TopicPartition, timestamp: str | int) -> Errand[int]:
        """As `offsets`, of one partition."""
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
        """With one attempt."""
        url = self.directory.url_for(call, now_ms())
        try:
            answer: Response = yield Exchange(url, call)
        except BrokerUnreachableError as error:
            raise self.directory.unreachable(url, error, now_ms()) from error.__cause__
        self.directory.answered(url, answer)
        return answer
