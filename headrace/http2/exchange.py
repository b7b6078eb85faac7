"""The client's side of one HTTP/2 connection without I/O: requests in, responses out, and whose fault a failure was.

    waiting ──> sent ──ResponseReceived──> head known ──StreamEnded──> ended
       └──────────┴── reset, GOAWAY, connection lost ──┴──> failed

Both transports drive one `Exchanges` per connection: they feed it what the socket gave and write what it wants
written; `Exchange.changed` says which responses moved. A request waits while the server takes no more streams. The
connection's credit goes back on arrival, so that an unread response never delays the others; the stream's goes back
when the reader takes the bytes. An exchange with a `decode` gives each piece to it as it arrives and keeps what that
makes of it, not the bytes; all credit goes back on arrival then.

Invariants: an exchange ends exactly once, ended or failed; a failure says in `unprocessed` whether the server is known
not to have acted on the request, so that it may be sent again without doing it twice (RFC 9113 section 8.7).
`RequestStream` is the base of both transports' streams, whose body and response go on side by side.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, assert_never

from headrace.core.errors import BrokerUnreachableError, HeadraceError
from headrace.http2.engine import Engine, Outbox, Role
from headrace.http2.events import (
    DataReceived,
    ErrorCode,
    Event,
    GoAwayReceived,
    LocalProtocolError,
    RemoteProtocolError,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowOpened,
)
from headrace.http2.frames import Buffer
from headrace.http2.header_fields import response_head
from headrace.http2.origin import Request

Decode: TypeAlias = Callable[[bytes | memoryview], Iterable[Any]]
"""A function that makes something of a piece of a response's body. The piece is its own during the call only, or as
long as `Keeps` says. Raises HeadraceError."""
Keeps: TypeAlias = Callable[[], int]
"""A function that is asked after `Decode`: it returns 0, or a number that stays the same as long as pieces since one of
the last are still used, and another number once none before the last one is."""
_NOTHING: Final[AbstractSet[object]] = frozenset()
_ERRORS_FROM = 400
"""The lowest status that is an error."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    """The header fields by lower-case name."""
    body: bytes


class Exchange:
    """One request and what has come of its response so far."""

    __slots__ = (
        "body",
        "body_ended",
        "buffered_bytes",
        "changed",
        "chunks",
        "decode",
        "ended",
        "error",
        "headers",
        "keeps",
        "request",
        "status",
        "stream_id",
    )

    def __init__(self, request: Request, body: Sequence[Buffer], changed: Callable[[], None]) -> None:
        self.request = request
        self.body: Sequence[Buffer] = body
        """The body that waits with the request until its turn comes."""
        self.body_ended = True
        """False where more of the body follows by `Exchanges.send`."""
        self.changed = changed
        """Called after anything below has changed; must not call back."""
        self.stream_id = 0
        self.status = 0
        """The status; 0 until the head is there."""
        self.headers: dict[str, str] = {}
        self.decode: Decode | None = None
        """The decoder of the body; bodies of errors stay bytes."""
        self.keeps: Keeps | None = None
        """The `Keeps` of `decode`."""
        self.chunks: deque[Any] = deque()
        """Received pieces: bytes, or what `decode` has made."""
        self.buffered_bytes = 0
        """The sum of the `chunks` that are bytes: at most one stream window."""
        self.ended = False
        self.error: HeadraceError | None = None

    @property
    def is_over(self) -> bool:
        return self.ended or self.error is not None


class Exchanges:
    def __init__(self, authority: str) -> None:
        self._authority = authority
        self._engine = Engine(Role.CLIENT)
        self._outbox = Outbox(self._engine)
        self._open: dict[int, Exchange] = {}
        self._waiting: deque[Exchange] = deque()
        self._keepers: list[Exchange] = []
        self.is_usable = True
        """Whether new requests may start here; False after GOAWAY, an error, or the loss of the connection."""

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is under way. A connection that is idle and not usable is finished."""
        return not self._open and not self._waiting

    @property
    def kept(self) -> AbstractSet[object]:
        """Return which of the received bytes are still used, by names: see `Keeps`."""
        if not self._keepers:
            return _NOTHING
        self._keepers = [exchange for exchange in self._keepers if not exchange.is_over]
        numbers = ((exchange.stream_id, exchange.keeps()) for exchange in self._keepers if exchange.keeps is not None)
        return {(stream_id, number) for stream_id, number in numbers if number}

    # -- requests --------------------------------------------------------------------------------------------------

    def start(self, exchange: Exchange) -> None:
        """Send the request now or when its turn comes; on a connection that is not usable any more it fails at once."""
        self._waiting.append(exchange)
        if exchange.keeps is not None:
            self._keepers.append(exchange)
        if self.is_usable:
            self._start_waiting()
        else:
            self._retire("closed the connection")

    def _start_waiting(self) -> None:
        while self._waiting and self.is_usable and self._engine.may_open_stream:
            exchange = self._waiting.popleft()
            body = [buffer for buffer in exchange.body if memoryview(buffer).nbytes]
            ended = exchange.body_ended and not body
            try:
                exchange.stream_id = self._engine.open_stream(exchange.request.fields, ended=ended)
            except LocalProtocolError:  # Stream ids are used up after 2^30 requests.
                self._waiting.appendleft(exchange)
                self._retire("its stream numbers are used up")
                return
            self._open[exchange.stream_id] = exchange
            if not ended:
                self._outbox.put(exchange.stream_id, body, ended=exchange.body_ended)
            exchange.body = ()

    def send(self, exchange: Exchange, buffers: Sequence[Buffer], *, ended: bool) -> None:
        """Send more of a body that was begun with `body_ended` False; it is dropped where the exchange is over."""
        if exchange.is_over:
            return
        exchange.body_ended = ended
        if exchange.stream_id:
            self._outbox.put(exchange.stream_id, buffers, ended=ended)
        else:
            exchange.body = [*exchange.body, *buffers]

    def cancel(self, exchange: Exchange, reason: str) -> HeadraceError:
        """Give one request up; the others on the connection go on. Return what to raise where a caller waits for it."""
        error = self._error(exchange, reason, unprocessed=False)
        if exchange.is_over:
            return error
        if exchange.stream_id:
            self._outbox.discard(exchange.stream_id)
            self._engine.reset(exchange.stream_id, ErrorCode.CANCEL)
            self._open.pop(exchange.stream_id, None)
        elif exchange in self._waiting:  # Otherwise it was given up before it was started.
            self._waiting.remove(exchange)
        exchange.chunks.clear()
        exchange.buffered_bytes = 0
        _fail(exchange, error)
        self._start_waiting()
        return error

    def take(self, exchange: Exchange) -> list[Any]:
        """Take what has arrived of the body since the last call; the server may send as many bytes again."""
        chunks = list(exchange.chunks)
        exchange.chunks.clear()
        self._engine.credit_stream(exchange.stream_id, exchange.buffered_bytes)
        exchange.buffered_bytes = 0
        return chunks

    # -- the connection --------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes | memoryview, now_ms: int = 0) -> None:
        """Carry out what the server sent. Raises `RemoteProtocolError`, after which every exchange has failed."""
        try:
            for event in self._engine.receive_data(data, now_ms):
                self._carry_out(event)
        except RemoteProtocolError as error:
            self.fail(f"does not speak HTTP/2 as it should ({error.message})")
            raise

    def data_to_send(self, limit: int) -> list[Buffer]:
        """Return what to write next: all control frames, and about `limit` body bytes where windows are open."""
        self._outbox.pump(limit)
        return self._engine.data_to_send()

    def fail(self, reason: str) -> None:
        """The connection is lost: every exchange fails. What was never sent is `unprocessed`."""
        self.is_usable = False
        for exchange in list(self._open.values()):
            _fail(exchange, self._error(exchange, reason, unprocessed=False))
        self._open.clear()
        self._retire(reason)

    def close(self) -> None:
        """Send GOAWAY; no request is started here any more."""
        self.is_usable = False
        self._engine.go_away()

    def _retire(self, reason: str) -> None:
        self.is_usable = False
        while self._waiting:
            exchange = self._waiting.popleft()
            _fail(exchange, self._error(exchange, reason, unprocessed=True))

    def _carry_out(self, event: Event) -> None:
        match event:
            case ResponseReceived(stream_id, fields):
                if exchange := self._open.get(stream_id):
                    exchange.status, exchange.headers = response_head(fields)
                    exchange.decode = exchange.decode if exchange.status < _ERRORS_FROM else None
                    exchange.changed()
            case DataReceived(stream_id, data):
                self._engine.credit_connection(len(data))
                if exchange := self._open.get(stream_id):
                    self._take_data(exchange, data)
            case StreamEnded(stream_id):
                self._end(stream_id)
            case StreamReset(stream_id, error_code):
                self._reset(stream_id, error_code)
            case WindowOpened(stream_id):
                self._outbox.unblock(stream_id)
                self._start_waiting()
            case GoAwayReceived():
                self._go_away(event)
            case RequestReceived():
                pass  # Servers send none: the engine refuses pushes.
            case _:
                assert_never(event)

    def _take_data(self, exchange: Exchange, data: bytes | memoryview) -> None:
        if exchange.decode is None:
            exchange.chunks.append(bytes(data))
            exchange.buffered_bytes += len(data)
            exchange.changed()
            return
        self._engine.credit_stream(exchange.stream_id, len(data))
        before = len(exchange.chunks)
        try:
            exchange.chunks.extend(exchange.decode(data))
        except HeadraceError as error:
            del self._open[exchange.stream_id]
            self._outbox.discard(exchange.stream_id)
            self._engine.reset(exchange.stream_id, ErrorCode.CANCEL)
            reason = f"sent what cannot be understood: {error.message}"
            _fail(exchange, self._error(exchange, reason, unprocessed=False))
            self._start_waiting()
        else:
            if len(exchange.chunks) > before:
                exchange.changed()

    def _end(self, stream_id: int) -> None:
        exchange = self._open.pop(stream_id, None)
        if exchange is None:
            return
        if self._engine.is_sending(stream_id):  # The answer came before our body was through: no more of it is wanted.
            self._outbox.discard(stream_id)
            self._engine.reset(stream_id, ErrorCode.NO_ERROR)
        exchange.ended = True
        exchange.changed()
        self._start_waiting()

    def _reset(self, stream_id: int, error_code: int) -> None:
        self._outbox.discard(stream_id)
        exchange = self._open.pop(stream_id, None)
        if exchange is not None:
            refused = error_code == ErrorCode.REFUSED_STREAM
            reason = "refused the request" if refused else f"broke the request off (HTTP/2 error {error_code})"
            _fail(exchange, self._error(exchange, reason, unprocessed=refused))
        self._start_waiting()

    def _go_away(self, event: GoAwayReceived) -> None:
        reason = f"is shutting down{': ' + event.reason if event.reason else ''}"
        for stream_id in [stream_id for stream_id in self._open if stream_id > event.last_stream_id]:
            exchange = self._open.pop(stream_id)
            self._outbox.discard(stream_id)
            self._engine.reset(stream_id, ErrorCode.CANCEL)
            _fail(exchange, self._error(exchange, reason, unprocessed=True))
        self._retire(reason)

    def _error(self, exchange: Exchange, reason: str, *, unprocessed: bool) -> BrokerUnreachableError:
        message = f"broker {self._authority} {reason} ({exchange.request.name})"
        return BrokerUnreachableError(message, unprocessed=unprocessed)


def _fail(exchange: Exchange, error: HeadraceError) -> None:
    exchange.error = error
    exchange.changed()


class ClientConnection(Protocol):
    """The connection as a stream of either transport sees it."""

    def send(self, exchange: Exchange, buffers: Sequence[Buffer], *, ended: bool) -> None: ...

    def cancel(self, exchange: Exchange, reason: str) -> object: ...


C = TypeVar("C", bound=ClientConnection)
E = TypeVar("E", bound=Exchange)


class RequestStream(Generic[C, E]):
    def __init__(self, connection: C, exchange: E) -> None:
        self._connection = connection
        self._exchange = exchange

    @property
    def status(self) -> int:
        """Return the status; 0 until the head of the response is there, at the latest when `receive` has returned."""
        return self._exchange.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the header fields by lower-case name; empty until the head is there."""
        return self._exchange.headers

    def send(self, *buffers: Buffer, ended: bool = False) -> None:
        """Send these buffers, and with `ended` nothing after them. Never waits; the buffers must not change until they
        are sent.

        What is given to a stream that is over is dropped: `receive` raises the reason.
        """
        self._connection.send(self._exchange, buffers, ended=ended)

    def cancel(self) -> None:
        """Reset the stream; `receive` then raises."""
        self._connection.cancel(self._exchange, "was told to stop")
