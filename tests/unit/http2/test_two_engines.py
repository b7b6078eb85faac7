"""A client's engine and a server's, driven at random: whatever crosses on the wire, neither calls the other wrong."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from headrace.core import limits
from headrace.http2.engine import Engine, Outbox, Role
from headrace.http2.events import (
    DataReceived,
    ErrorCode,
    Event,
    GoAwayReceived,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowOpened,
)
from tests.support.examples import examples
from tests.support.http2 import OK, POST, output

CODES = st.sampled_from([ErrorCode.CANCEL, ErrorCode.NO_ERROR, ErrorCode.REFUSED_STREAM])
SIZES = st.sampled_from([0, 1, 700, 70_000, 3 << 20])
STEPS = st.one_of(
    st.tuples(st.just("open"), st.integers(0, 1)),
    st.tuples(st.just("put"), st.integers(0, 1), st.integers(0, 5), SIZES),
    st.tuples(st.just("end"), st.integers(0, 1), st.integers(0, 5)),
    st.tuples(st.just("reset"), st.integers(0, 1), st.integers(0, 5), CODES),
    st.tuples(st.just("pump"), st.integers(0, 1)),
    st.tuples(st.just("deliver"), st.integers(0, 1), st.integers(1, 100_000)),
    st.tuples(st.just("go away"), st.integers(0, 1)),
)


@dataclass
class Side:
    engine: Engine
    wire: bytearray = field(default_factory=bytearray)
    """What it has sent and the other has not received yet."""
    put: dict[int, bytearray] = field(default_factory=dict)
    got: dict[int, bytearray] = field(default_factory=dict)
    heads: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)
    """Streams of which no event may come any more."""
    ended: set[int] = field(default_factory=set)
    said_all: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.engine)

    def flush(self) -> None:
        while self.outbox.pump(limits.H2_WRITE_BYTES):
            pass
        self.wire += output(self.engine)

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        if not self.engine.is_sending(stream_id) and not self.engine.is_receiving(stream_id):
            return
        self.outbox.discard(stream_id)
        self.engine.reset(stream_id, code)
        self.over.add(stream_id)

    def take(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case RequestReceived(stream_id) | ResponseReceived(stream_id):
                    assert stream_id not in self.heads
                    self.heads.add(stream_id)
                case DataReceived(stream_id, data):
                    assert stream_id not in self.over | self.ended
                    self.got.setdefault(stream_id, bytearray()).extend(data)
                    self.engine.credit_connection(len(data))
                    self.engine.credit_stream(stream_id, len(data))
                case StreamEnded(stream_id):
                    assert stream_id not in self.over | self.ended
                    self.ended.add(stream_id)
                case StreamReset(stream_id):
                    assert stream_id not in self.over
                    self.outbox.discard(stream_id)
                    self.over.add(stream_id)
                case WindowOpened(stream_id):
                    self.outbox.unblock(stream_id)
                case GoAwayReceived():
                    pass


class Talk:
    def __init__(self) -> None:
        self.sides = Side(Engine(Role.CLIENT)), Side(Engine(Role.SERVER))
        self.streams: list[int] = []

    def step(self, name: str, which: int, *rest: int) -> None:
        side = self.sides[which]
        stream_id = self.streams[rest[0] % len(self.streams)] if rest and self.streams else 0
        if name == "open" and side.engine.role is Role.CLIENT and side.engine.may_open_stream:
            self.streams.append(side.engine.open_stream(POST, ended=False))
        elif name == "put":
            self.put(side, stream_id, bytes(rest[1]), ended=False)
        elif name == "end":
            self.put(side, stream_id, b"", ended=True)
        elif name == "reset":
            side.reset(stream_id, ErrorCode(rest[1]))
        elif name == "pump":
            side.flush()
        elif name == "deliver":
            self.deliver(which, rest[0])
        elif name == "go away":
            side.engine.go_away()

    def put(self, side: Side, stream_id: int, body: bytes, *, ended: bool) -> None:
        if not side.engine.is_sending(stream_id) or stream_id in side.said_all:
            return
        if side.engine.role is Role.SERVER and stream_id not in side.put:
            side.engine.send_head(stream_id, OK, ended=False)
        side.put.setdefault(stream_id, bytearray()).extend(body)
        side.outbox.put(stream_id, [body], ended=ended)
        if ended:
            side.said_all.add(stream_id)

    def deliver(self, which: int, count: int) -> None:
        side, other = self.sides[which], self.sides[1 - which]
        chunk = bytes(side.wire[:count])
        del side.wire[:count]
        other.take(other.engine.receive_data(chunk))

    def finish(self) -> None:
        """Everything that is on its way arrives."""
        while True:
            for side in self.sides:
                side.flush()
            if not any(side.wire for side in self.sides):
                return
            for which, side in enumerate(self.sides):
                self.deliver(which, len(side.wire))


@examples(1.5)
@given(st.lists(STEPS, max_size=60))
def test_should_agree_whatever_crosses(steps: list[tuple[str, int]]) -> None:
    talk = Talk()
    for step in steps:
        talk.step(*step)
    talk.finish()

    client, server = talk.sides
    for sender, receiver in ((client, server), (server, client)):
        for stream_id, body in sender.put.items():
            got = receiver.got.get(stream_id, b"")
            assert body.startswith(got)
            if stream_id not in client.over | server.over:
                assert got == body, "all of it, where nobody gave up"
        assert sender.engine.receive_data(b"") == [], "it has not failed"
        assert not sender.engine.failed
