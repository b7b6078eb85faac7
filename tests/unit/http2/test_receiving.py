"""What a peer may not do, and what it costs: its stream or its connection (RFC 9113 sections 5, 6 and 8; floods)."""

import gc
from collections.abc import Callable

import pytest

from headrace.core import limits
from headrace.http2 import connection_state, frames
from headrace.http2.connection_state import (
    H2_IDLE_FRAMES_MAX,
    H2_IDLE_FRAMES_PER_SECOND,
    H2_RESETS_MAX,
    H2_RESETS_PER_SECOND,
)
from headrace.http2.engine import PREFACE, Engine, Role
from headrace.http2.events import (
    EVERY_STREAM,
    DataReceived,
    ErrorCode,
    Event,
    Fields,
    RemoteProtocolError,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowOpened,
)
from headrace.http2.frames import END_HEADERS, END_STREAM, LENGTH_31_BITS, PADDED, pack_frame, pack_window_update
from headrace.http2.hpack import HeaderEncoder
from headrace.http2.receiving import H2_CONTINUATIONS_MAX
from tests.support.http2 import FRAME, GET, OK, POST, output

PING = pack_frame(frames.PING, 0, 0, bytes(8))


class Peer:
    """Frames of one side, by hand, and what the other side's engine makes of them."""

    def __init__(self, role: Role = Role.CLIENT) -> None:
        """`role` is the peer's."""
        self.engine = Engine(Role.SERVER if role is Role.CLIENT else Role.CLIENT)
        self.encoder = HeaderEncoder()
        self.now_ms = 0
        self.send((PREFACE if role is Role.CLIENT else b"") + frames.pack_settings({}))
        output(self.engine)

    def send(self, data: bytes) -> list[Event]:
        return self.engine.receive_data(data, self.now_ms)

    def head(self, stream_id: int, fields: Fields = POST, flags: int = 0) -> bytes:
        return pack_frame(frames.HEADERS, END_HEADERS | flags, stream_id, self.encoder.encode(fields))

    def open(self, stream_id: int, fields: Fields = POST, flags: int = 0) -> list[Event]:
        return self.send(self.head(stream_id, fields, flags))

    def is_reset(self, stream_id: int, code: ErrorCode) -> bool:
        """Whether it is told so, and nothing else."""
        return output(self.engine) == frames.pack_reset(stream_id, code)

    def refused(self, data: bytes) -> ErrorCode:
        """What these bytes end the connection with."""
        with pytest.raises(RemoteProtocolError, match="the peer sent ") as refused:
            self.send(data)
        code = ErrorCode(int(str(refused.value.details["error_code"])))
        assert output(self.engine).endswith(frames.pack_goaway(self.engine.last_request_id, code))
        assert self.engine.failed
        assert not self.engine.is_sending(1)
        return code


def data(stream_id: int, payload: bytes = b"x", flags: int = 0) -> bytes:
    return pack_frame(frames.DATA, flags, stream_id, payload)


def literal(stream_id: int, fields: Fields, flags: int = 0) -> bytes:
    """A head that leaves the tables alone."""
    parts = [bytes([0, len(name)]) + name + bytes([len(value)]) + value for name, value in fields]
    return pack_frame(frames.HEADERS, END_HEADERS | flags, stream_id, b"".join(parts))


def reset(stream_id: int) -> bytes:
    return frames.pack_reset(stream_id, ErrorCode.CANCEL)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (data(1), ErrorCode.PROTOCOL_ERROR),
        (data(0), ErrorCode.PROTOCOL_ERROR),
        (reset(1), ErrorCode.PROTOCOL_ERROR),
        (reset(0), ErrorCode.PROTOCOL_ERROR),
        (pack_window_update(1, 5), ErrorCode.PROTOCOL_ERROR),
        (pack_window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
        (pack_window_update(0, LENGTH_31_BITS), ErrorCode.FLOW_CONTROL_ERROR),
        (pack_frame(frames.PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.SETTINGS, frames.ACK, 0, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
        (pack_frame(frames.SETTINGS, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.pack_settings({connection_state.INITIAL_WINDOW_SIZE: 1 << 31}), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.pack_settings({connection_state.MAX_FRAME_SIZE: 16_383}), ErrorCode.PROTOCOL_ERROR),
        (frames.pack_settings({connection_state.ENABLE_PUSH: 2}), ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.PUSH_PROMISE, END_HEADERS, 1, bytes(5)), ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.PRIORITY, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.PRIORITY, 0, 1, b"\0\0\0\1\0"), ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.CONTINUATION, END_HEADERS, 1, b"\x82"), ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.HEADERS, END_HEADERS, 0, b"\x82"), ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.HEADERS, END_HEADERS, 2, b"\x82"), ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.HEADERS, END_HEADERS | frames.WITH_PRIORITY, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
        (pack_frame(frames.HEADERS, 0, 1, b"\x82") + PING, ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.HEADERS, 0, 1) + pack_frame(frames.CONTINUATION, 0, 3), ErrorCode.PROTOCOL_ERROR),
        (pack_frame(frames.HEADERS, 0, 1) + pack_frame(77, 0, 1), ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_should_end_the_connection(sent: bytes, code: ErrorCode) -> None:
    assert Peer().refused(sent) == code


def test_should_end_the_connection_when_settings_do_not_come_first() -> None:
    server = Engine(Role.SERVER)
    with pytest.raises(RemoteProtocolError, match="a frame of type 6 where only one of type 4 may be"):
        server.receive_data(PREFACE + PING)


def test_should_end_the_connection_when_a_stream_goes_on_after_its_end() -> None:
    for late in (data(1), literal(1, POST)):
        peer = Peer()
        peer.open(1, GET, END_STREAM)
        peer.engine.send_head(1, OK, ended=True)
        assert peer.refused(late) == ErrorCode.STREAM_CLOSED
        peer = Peer()
        peer.open(1)
        peer.send(reset(1))
        assert peer.refused(late) == ErrorCode.STREAM_CLOSED


def test_should_end_the_connection_when_a_skipped_stream_is_opened() -> None:
    peer = Peer()
    peer.open(5)
    assert peer.refused(peer.head(3)) == ErrorCode.PROTOCOL_ERROR


def test_should_ignore_what_was_on_its_way_to_a_stream_that_we_reset() -> None:
    peer = Peer()
    peer.open(1)
    peer.engine.reset(1, ErrorCode.CANCEL)
    late = data(1) + peer.head(1, [(b"x-checksum", b"1")], END_STREAM) + reset(1) + pack_window_update(1, 0)
    assert peer.send(late) == []
    assert peer.open(3, [*POST, (b"x-checksum", b"1")]) != [], "the tables have kept step"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (pack_window_update(1, 0), ErrorCode.PROTOCOL_ERROR),
        (pack_window_update(1, LENGTH_31_BITS), ErrorCode.FLOW_CONTROL_ERROR),
        (data(1, b"123456"), ErrorCode.PROTOCOL_ERROR),
        (data(1, b"1234", END_STREAM), ErrorCode.PROTOCOL_ERROR),
        (literal(1, [(b"x", b"1")]), ErrorCode.PROTOCOL_ERROR),
        (literal(1, [(b":path", b"/")], END_STREAM), ErrorCode.PROTOCOL_ERROR),
        (literal(1, [(b"x", b"1")], END_STREAM), ErrorCode.PROTOCOL_ERROR),
    ],
    ids=["no increment", "window", "too long", "too short", "two heads", "pseudo trailer", "trailers too early"],
)
def test_should_reset_the_stream_and_go_on(sent: bytes, code: ErrorCode) -> None:
    peer = Peer()
    peer.open(1, [*POST, (b"content-length", b"5")])
    assert StreamReset(1, code) in peer.send(sent)
    assert peer.is_reset(1, code)
    assert peer.open(3) == [RequestReceived(3, POST, ended=False)]


@pytest.mark.parametrize("late", [data(1), literal(1, POST)])
def test_should_reset_a_stream_that_goes_on_after_it_said_all(late: bytes) -> None:
    peer = Peer()
    peer.open(1, GET, END_STREAM)
    assert peer.send(late) == [StreamReset(1, ErrorCode.STREAM_CLOSED)]
    assert peer.is_reset(1, ErrorCode.STREAM_CLOSED)


@pytest.mark.parametrize("fields", [GET[1:], [*GET, (b"connection", b"close")], [*POST, (b"content-length", b"1")]])
def test_should_say_nothing_of_a_request_that_is_malformed(fields: Fields) -> None:
    peer = Peer()
    assert peer.open(1, fields, END_STREAM) == []
    assert peer.is_reset(1, ErrorCode.PROTOCOL_ERROR)


def test_should_refuse_streams_over_the_limit() -> None:
    peer = Peer()
    last = 2 * limits.H2_MAX_CONCURRENT_STREAMS + 1
    for stream_id in range(1, last, 2):
        assert peer.open(stream_id)
    assert peer.open(last) == []
    assert peer.is_reset(last, ErrorCode.REFUSED_STREAM)


def test_should_hold_the_peer_to_the_windows_that_it_was_given() -> None:
    peer = Peer()
    peer.open(1)
    peer.engine.size_window(1, limits.H2_STREAM_WINDOW_BYTES)
    for _ in range(limits.H2_STREAM_WINDOW_BYTES // len(FRAME)):
        assert peer.send(data(1, FRAME)) == [DataReceived(1, FRAME)]
    assert peer.send(data(1)) == [StreamReset(1, ErrorCode.FLOW_CONTROL_ERROR)]
    peer.open(3)
    peer.engine.size_window(3, limits.H2_STREAM_WINDOW_BYTES)
    for _ in range((limits.H2_CONNECTION_WINDOW_BYTES - limits.H2_STREAM_WINDOW_BYTES) // len(FRAME) - 1):
        peer.send(data(3, FRAME))
        peer.engine.credit_stream(3, len(FRAME))
    assert peer.refused(data(3, FRAME)) == ErrorCode.FLOW_CONTROL_ERROR, "one byte was lost with the first stream"


def test_should_move_all_windows_when_the_peer_changes_their_size() -> None:
    peer = Peer()
    peer.open(1)
    assert peer.engine.sendable(1) == 16_384
    assert peer.send(frames.pack_settings({connection_state.INITIAL_WINDOW_SIZE: 100})) == [WindowOpened(EVERY_STREAM)]
    events = peer.send(frames.pack_settings({connection_state.INITIAL_WINDOW_SIZE: 101}))
    assert events == [WindowOpened(EVERY_STREAM), WindowOpened(1)]
    peer.send(frames.pack_settings({connection_state.INITIAL_WINDOW_SIZE: 100}))
    peer.engine.send_head(1, OK, ended=False)
    peer.engine.send_body(1, bytes(60), ended=False)
    assert peer.engine.sendable(1) == 40
    peer.send(frames.pack_settings({connection_state.INITIAL_WINDOW_SIZE: 10}))
    assert peer.engine.sendable(1) == 0, "it is below nothing"
    peer.send(pack_window_update(1, 51))
    assert peer.engine.sendable(1) == 1
    peer.send(pack_window_update(1, LENGTH_31_BITS - 1))
    wide = frames.pack_settings({connection_state.INITIAL_WINDOW_SIZE: LENGTH_31_BITS})
    assert peer.refused(wide) == ErrorCode.FLOW_CONTROL_ERROR


def test_should_send_a_long_head_in_parts() -> None:
    peer, client = Peer(), Peer(Role.SERVER)
    client.engine.open_stream(GET, ended=True)
    peer.open(1, GET, END_STREAM)
    fields = [*OK, (b"x-long", b"\xff" * 60_000)]
    peer.engine.send_head(1, fields, ended=True)
    parts = output(peer.engine)
    assert parts.count(pack_frame(frames.CONTINUATION, 0, 1, b"")[3:]) >= 2
    assert client.send(parts) == [ResponseReceived(1, fields, ended=True), StreamEnded(1)]


@pytest.mark.parametrize(
    ("fields", "length", "is_whole"),
    [
        ([*OK, (b"content-length", b"3")], 3, True),
        ([*OK, (b"content-length", b"3")], 2, False),
        ([(b":status", b"304"), (b"content-length", b"3")], 0, True),
        ([(b":status", b"204")], 3, False),
    ],
)
def test_should_hold_responses_to_their_length(fields: Fields, length: int, is_whole: bool) -> None:
    server = Peer(Role.SERVER)
    server.engine.open_stream(GET, ended=True)
    events = server.send(server.head(1, [(b":status", b"103")]) + server.head(1, fields) + data(1, bytes(length), 1))
    assert events[0] == ResponseReceived(1, fields, ended=False)
    assert events[-1] == (StreamEnded(1) if is_whole else StreamReset(1, ErrorCode.PROTOCOL_ERROR))


def test_should_take_the_length_of_a_head_request_for_what_it_is() -> None:
    server = Peer(Role.SERVER)
    server.engine.open_stream([(b":method", b"HEAD"), *GET[1:]], ended=True)
    assert StreamEnded(1) in server.open(1, [*OK, (b"content-length", b"3")], END_STREAM)


@pytest.mark.parametrize("sent", [data(1), literal(1, [(b":status", b"100")], END_STREAM), literal(1, GET)])
def test_should_reset_a_response_that_is_none(sent: bytes) -> None:
    server = Peer(Role.SERVER)
    server.engine.open_stream(GET, ended=True)
    assert server.send(sent) == [StreamReset(1, ErrorCode.PROTOCOL_ERROR)]


def test_should_refuse_what_servers_may_not_do() -> None:
    push = frames.pack_settings({connection_state.ENABLE_PUSH: 1})
    assert Peer(Role.SERVER).refused(push) == ErrorCode.PROTOCOL_ERROR
    assert Peer(Role.SERVER).refused(literal(2, OK)) == ErrorCode.PROTOCOL_ERROR


# -- floods ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        PING,
        pack_frame(frames.PING, frames.ACK, 0, bytes(8)),
        frames.pack_settings({}),
        pack_frame(frames.SETTINGS, frames.ACK, 0),
        pack_frame(frames.PRIORITY, 0, 9, bytes(5)),
        pack_window_update(0, 1),
        pack_window_update(1, 1),
        data(1, b""),
        data(1, b"\x03\0\0\0", PADDED),
        pack_frame(250, 0, 0, b"unknown"),
        frames.pack_goaway(0, 0),
        data(3, b""),
        reset(3),
    ],
    ids=str,
)
def test_should_end_a_connection_that_moves_nothing_for_long(frame: bytes) -> None:
    peer = Peer()
    peer.open(1)
    peer.open(3)
    peer.engine.reset(3, ErrorCode.CANCEL)
    for count in range(H2_IDLE_FRAMES_MAX):  # A pace that may go on for ever.
        peer.now_ms += 1_000 // H2_IDLE_FRAMES_PER_SECOND
        if count % 100 == 0:
            peer.send(frame * 100)
    assert peer.refused(frame * (H2_IDLE_FRAMES_MAX + 1)) == ErrorCode.ENHANCE_YOUR_CALM
    assert len(output(peer.engine)) == 0


def test_should_discard_what_is_on_its_way_to_a_stream_that_we_reset_however_much_it_is() -> None:
    peer = Peer()
    peer.open(1)
    peer.engine.reset(1, ErrorCode.NO_ERROR)
    for _ in range(2):
        assert peer.send(data(1) * H2_IDLE_FRAMES_MAX) == []


def test_should_let_readers_answer_what_we_send() -> None:
    peer = Peer()
    peer.open(1)
    peer.engine.send_head(1, OK, ended=False)
    for _ in range(3 * H2_IDLE_FRAMES_MAX // 2):
        peer.engine.send_body(1, b"x", ended=False)
        peer.send(pack_window_update(1, 1) + pack_window_update(0, 1))


def rapid_resets(peer: Peer, stream_id: int) -> None:
    """CVE-2023-44487."""
    peer.send(peer.head(stream_id) + reset(stream_id))


def made_resets(peer: Peer, stream_id: int) -> None:
    """CVE-2025-8671: the server resets, the client has not said so."""
    peer.send(peer.head(stream_id) + pack_window_update(stream_id, 0))


def malformed(peer: Peer, stream_id: int) -> None:
    peer.send(peer.head(stream_id, GET[1:]))


def refused_by_the_caller(peer: Peer, stream_id: int) -> None:
    peer.send(peer.head(stream_id))
    peer.engine.reset(stream_id, ErrorCode.REFUSED_STREAM)


def test_should_let_clients_cut_their_uploads_off_once_they_are_answered() -> None:
    peer = Peer()
    for stream_id in range(1, 4 * H2_RESETS_MAX, 2):
        peer.send(peer.head(stream_id))
        peer.engine.send_head(stream_id, OK, ended=True)
        peer.send(reset(stream_id))


@pytest.mark.parametrize("attack", [rapid_resets, made_resets, malformed, refused_by_the_caller])
def test_should_end_a_connection_whose_streams_are_for_nothing(attack: Callable[[Peer, int], None]) -> None:
    peer, stream_id = Peer(), 1
    for _ in range(H2_RESETS_MAX):
        attack(peer, stream_id)
        stream_id += 2
    peer.now_ms = 1_000
    for _ in range(H2_RESETS_PER_SECOND):
        attack(peer, stream_id)
        stream_id += 2

    def go_on() -> None:
        attack(peer, stream_id)
        attack(peer, stream_id + 2)

    with pytest.raises(RemoteProtocolError, match="streams that are reset faster than") as refused:
        go_on()
    assert refused.value.details["error_code"] == ErrorCode.ENHANCE_YOUR_CALM


def test_should_end_a_connection_whose_head_never_ends() -> None:
    peer = Peer()
    peer.send(pack_frame(frames.HEADERS, 0, 1))
    empty = pack_frame(frames.CONTINUATION, 0, 1)
    peer.send(empty * H2_CONTINUATIONS_MAX)
    assert peer.refused(empty) == ErrorCode.ENHANCE_YOUR_CALM
    peer = Peer()
    half = bytes([0x82]) * (limits.H2_HEADER_BLOCK_BYTES_MAX // 2 + 1)
    peer.send(pack_frame(frames.HEADERS, 0, 1, half))
    assert peer.refused(pack_frame(frames.CONTINUATION, 0, 1, half)) == ErrorCode.ENHANCE_YOUR_CALM


def test_should_hold_no_memory_that_bytes_came_in_when_they_are_handled() -> None:
    """A buffer can be cleared only while nobody has a view of it."""
    peer = Peer()
    peer.open(1)
    memory = bytearray(data(1, b"value"))
    events = peer.engine.receive_data(memoryview(memory), 0)
    assert [type(event) for event in events] == [DataReceived]
    with pytest.raises(BufferError):
        memory.clear()
    del events
    memory.clear()


@pytest.mark.parametrize("role", Role)
def test_should_leave_nothing_to_the_garbage_collector_when_a_connection_is_gone(role: Role) -> None:
    gc.collect()
    Peer(role).send(PING)
    assert gc.collect() == 0
