"""The engine on its own: events whatever the chunking, credit, resets, GOAWAY, and hostile bytes.

Bodies on their way out: order, turns, windows.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core import limits
from headrace.http2 import frames
from headrace.http2.connection_state import H2_STREAMS_BEFORE_SETTINGS
from headrace.http2.engine import PREFACE, Engine, Outbox, Role
from headrace.http2.events import (
    EVERY_STREAM,
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
from headrace.http2.frames import END_HEADERS, END_STREAM
from headrace.http2.hpack import HeaderEncoder
from tests.support.http2 import FRAME, GET, OK, POST, Link, output


def test_should_carry_a_request_and_its_response() -> None:
    link = Link()
    stream_id = link.request(POST, ended=False)
    link.client.send_body(stream_id, b"in", ended=True)
    link.run()
    link.server.send_head(stream_id, OK, ended=False)
    link.server.send_body(stream_id, b"out", ended=True)
    link.run()

    assert link.server_events == [
        RequestReceived(stream_id, POST, ended=False),
        DataReceived(stream_id, b"in"),
        StreamEnded(stream_id),
    ]
    assert link.client_events == [
        ResponseReceived(stream_id, OK, ended=False),
        DataReceived(stream_id, b"out"),
        StreamEnded(stream_id),
    ]
    assert not link.client.is_sending(stream_id)
    assert not link.server.is_receiving(stream_id)


def a_conversation() -> bytes:
    """All bytes of a client that sends two requests, one of them with a body, a reset, and its goodbye."""
    client = Engine(Role.CLIENT)
    sent = output(client)
    first = client.open_stream(POST, ended=False)
    client.send_body(first, b"x" * 3000, ended=True)
    second = client.open_stream([*GET, (b"x-long", b"y" * 500)], ended=False)
    sent += output(client)
    client.reset(second, ErrorCode.CANCEL)
    client.go_away()
    return sent + output(client)


CONVERSATION = a_conversation()


def received(chunks: list[bytes]) -> list[Event]:
    """What a server makes of these chunks; bodies come in as many pieces as chunks, and are joined here."""
    server = Engine(Role.SERVER)
    events: list[Event] = []
    for event in (event for chunk in chunks for event in server.receive_data(chunk)):
        last = events[-1] if events else None
        if isinstance(event, DataReceived) and isinstance(last, DataReceived) and last.stream_id == event.stream_id:
            events[-1] = DataReceived(event.stream_id, b"".join((last.data, event.data)))
        else:
            events.append(event)
    return events


@given(st.lists(st.integers(0, len(CONVERSATION))))
def test_should_give_the_same_events_when_chunked_anyhow(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(CONVERSATION)]
    chunks = [CONVERSATION[start:end] for start, end in itertools.pairwise(edges)]

    events = received(chunks)

    assert events == received([CONVERSATION])
    assert {type(event) for event in events} >= {
        RequestReceived,
        DataReceived,
        StreamEnded,
        StreamReset,
        GoAwayReceived,
    }


@given(st.binary(max_size=300), st.sampled_from(Role), st.booleans())
def test_should_raise_nothing_but_its_own_error_when_bytes_are_arbitrary(data: bytes, role: Role, begun: bool) -> None:
    engine = Engine(role)
    output(engine)
    try:
        engine.receive_data((PREFACE if begun and role is Role.SERVER else b"") + data)
    except RemoteProtocolError:
        assert engine.failed
        assert engine.receive_data(b"more") == []
        assert output(engine)[3] == 7, "a GOAWAY says goodbye"


@given(st.integers(0, len(CONVERSATION) - 1), st.integers(1, 255))
def test_should_raise_nothing_but_its_own_error_when_a_byte_is_wrong(at: int, change: int) -> None:
    damaged = bytearray(CONVERSATION)
    damaged[at] ^= change
    engine = Engine(Role.SERVER)
    try:
        engine.receive_data(bytes(damaged))
    except RemoteProtocolError:
        assert engine.failed


some_frames = st.builds(
    lambda kind, flags, stream_id, body: len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream_id + body,
    st.integers(0, 12),
    st.integers(0, 255),
    st.sampled_from([n.to_bytes(4, "big") for n in (0, 1, 2, 3, 5, 2**31 + 1)]),
    st.binary(max_size=40),
)


@given(st.lists(some_frames, max_size=8), st.sampled_from(Role))
def test_should_raise_nothing_but_its_own_error_when_frames_are_arbitrary(parts: list[bytes], role: Role) -> None:
    engine = Engine(role)
    if role is Role.CLIENT:
        engine.open_stream(GET, ended=True)
    try:
        engine.receive_data((PREFACE if role is Role.SERVER else b"") + b"".join(parts))
    except RemoteProtocolError:
        assert engine.failed


def upload(link: Link) -> int:
    """A request whose body is counted on."""
    stream_id = link.request(POST, ended=False)
    link.server.size_window(stream_id, limits.H2_STREAM_WINDOW_BYTES)
    link.run()
    return stream_id


def test_should_send_no_more_than_the_window_when_the_consumer_takes_nothing() -> None:
    link = Link()
    stream_id = link.request(POST, ended=False)
    sent = 0
    while (allowed := link.client.sendable(stream_id)) > 0:
        link.client.send_body(stream_id, FRAME[:allowed], ended=False)
        sent += allowed
        link.run()

    assert sent == limits.H2_REQUEST_WINDOW_BYTES
    link.server.credit_stream(stream_id, sent)
    link.server.credit_connection(sent)
    link.run()
    assert link.client.sendable(stream_id) == limits.H2_REQUEST_WINDOW_BYTES
    assert WindowOpened(stream_id) in link.client_events


def test_should_let_through_what_the_window_is_when_the_consumer_sizes_it() -> None:
    link = Link()
    stream_id = upload(link)
    for _ in range(limits.H2_STREAM_WINDOW_BYTES // len(FRAME)):
        assert link.client.sendable(stream_id) >= len(FRAME)
        link.client.send_body(stream_id, FRAME, ended=False)
        link.run()
    assert link.client.sendable(stream_id) == 0

    link.server.size_window(stream_id, 1000)
    link.server.credit_stream(stream_id, limits.H2_STREAM_WINDOW_BYTES - 501)
    link.run()
    assert link.client.sendable(stream_id) == 0, "less than half of it is free"
    link.server.credit_stream(stream_id, 1)
    link.run()
    assert link.client.sendable(stream_id) == 500
    link.server.reset(stream_id, ErrorCode.CANCEL)
    link.server.size_window(stream_id, 1 << 20)
    link.run()
    assert not link.client.is_sending(stream_id)


def test_should_open_the_connection_window_when_half_of_it_was_taken() -> None:
    link = Link()
    for _ in range(limits.H2_CONNECTION_WINDOW_BYTES // limits.H2_STREAM_WINDOW_BYTES):
        stream_id = upload(link)
        for _ in range(limits.H2_STREAM_WINDOW_BYTES // len(FRAME)):
            link.client.send_body(stream_id, FRAME, ended=False)
            link.run()
    last = upload(link)

    assert link.client.sendable(last) == 0
    link.server.credit_connection(limits.H2_CONNECTION_WINDOW_BYTES // 2)
    link.run()
    assert WindowOpened(EVERY_STREAM) in link.client_events
    assert link.client.sendable(last) == limits.H2_MAX_FRAME_BYTES


def test_should_keep_to_the_rfc_windows_when_the_peer_has_said_nothing() -> None:
    client = Engine(Role.CLIENT)
    stream_id = client.open_stream(POST, ended=False)
    assert client.sendable(stream_id) == 16_384
    for _ in range(3):
        client.send_body(stream_id, FRAME[:16_384], ended=False)
    assert client.sendable(stream_id) == 65_535 - 3 * 16_384


def test_should_tell_the_peer_when_a_stream_is_reset() -> None:
    link = Link()
    stream_id = link.request(POST, ended=False)
    link.client.reset(stream_id, ErrorCode.CANCEL)
    link.server.send_head(stream_id, OK, ended=False)
    link.run()

    assert link.server_events[-1] == StreamReset(stream_id, ErrorCode.CANCEL)
    assert link.client_events == [], "what crossed with the reset is dropped"
    link.client.send_body(stream_id, b"late", ended=True)
    link.client.reset(stream_id, ErrorCode.CANCEL)
    assert output(link.client) == b""


def test_should_credit_the_connection_when_data_crosses_with_a_reset() -> None:
    link = Link()
    for _ in range(2 * limits.H2_CONNECTION_WINDOW_BYTES // limits.H2_STREAM_WINDOW_BYTES):
        stream_id = upload(link)
        link.server.reset(stream_id, ErrorCode.CANCEL)
        for _ in range(limits.H2_STREAM_WINDOW_BYTES // len(FRAME)):
            link.client.send_body(stream_id, FRAME, ended=False)
            link.server.receive_data(output(link.client))
        link.run()

    last = link.request(POST, ended=False)
    assert link.client.sendable(last) > 0


def test_should_finish_what_is_open_and_refuse_what_is_new_when_it_goes_away() -> None:
    link = Link()
    old = link.request()
    link.server.go_away()
    new = link.client.open_stream(GET, ended=True)
    link.run()
    link.server.send_head(old, OK, ended=True)
    link.run()

    assert GoAwayReceived(old, ErrorCode.NO_ERROR, "") in link.client_events
    assert StreamReset(new, ErrorCode.REFUSED_STREAM) in link.client_events
    assert ResponseReceived(old, OK, ended=True) in link.client_events
    assert [event.stream_id for event in link.server_events if isinstance(event, RequestReceived)] == [old]


def test_should_wait_for_the_servers_limit_when_streams_are_opened_before_its_settings() -> None:
    client = Engine(Role.CLIENT)
    for _ in range(H2_STREAMS_BEFORE_SETTINGS):
        client.open_stream(GET, ended=True)
    assert not client.may_open_stream
    with pytest.raises(LocalProtocolError, match="100 streams are open"):
        client.open_stream(GET, ended=True)

    server = Engine(Role.SERVER)
    server.receive_data(output(client))
    client.receive_data(output(server))
    assert client.may_open_stream


def test_should_drop_trailers_and_answer_pings() -> None:
    link = Link()
    stream_id = link.request(POST, ended=False)
    trailers = HeaderEncoder().encode([(b"x-checksum", b"1")])
    link.server.receive_data(frames.pack_frame(frames.HEADERS, END_HEADERS | END_STREAM, stream_id, trailers))
    assert not link.server.is_receiving(stream_id)
    assert link.server.receive_data(frames.pack_frame(frames.PING, 0, 0, b"12345678")) == []
    assert output(link.server) == frames.pack_frame(frames.PING, frames.ACK, 0, b"12345678")
    assert link.server.receive_data(frames.pack_frame(frames.PING, frames.ACK, 0, b"12345678")) == []
    assert output(link.server) == b"", "an answer is not answered"


def test_should_return_the_credit_of_padding_when_data_is_padded() -> None:
    link = Link()
    stream_id = link.request(POST, ended=False)
    padded = frames.pack_frame(frames.DATA, frames.PADDED, stream_id, b"\xff" + bytes(255))
    for now_ms in range(limits.H2_REQUEST_WINDOW_BYTES // 2 // 256):  # Credit is sent by the half window.
        assert link.server.receive_data(padded, now_ms) == []
    link.run()
    assert WindowOpened(stream_id) in link.client_events


def test_should_refuse_a_client_when_it_pushes_too_many_header_bytes() -> None:
    link = Link()
    with pytest.raises(RemoteProtocolError, match=r"(?i)header"):
        link.request([*GET, (b"x-huge", b"z" * (limits.H2_HEADER_LIST_BYTES_MAX + 1))])


def bodies(link: Link) -> dict[int, bytes]:
    """What the server has received, by stream."""
    received: dict[int, bytes] = {}
    for event in link.server_events:
        if isinstance(event, DataReceived):
            received[event.stream_id] = received.get(event.stream_id, b"") + event.data
    return received


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.binary(max_size=40_000), max_size=3)), max_size=8))
def test_should_send_every_byte_in_order_when_bodies_are_interleaved(puts: list[tuple[int, list[bytes]]]) -> None:
    link = Link()
    streams = [link.request(POST, ended=False) for _ in range(3)]
    outbox = Outbox(link.client)
    for which, buffers in puts:
        outbox.put(streams[which], buffers, ended=False)
        outbox.pump(10_000)
    for stream_id in streams:
        outbox.put(stream_id, (), ended=True)
    while outbox.pump(limits.H2_WRITE_BYTES):
        link.run()

    expected = {stream_id: b"".join(b"".join(b) for w, b in puts if streams[w] == stream_id) for stream_id in streams}
    assert bodies(link) == {stream_id: body for stream_id, body in expected.items() if body}
    assert {event.stream_id for event in link.server_events if isinstance(event, StreamEnded)} == set(streams)
    assert not any(outbox.is_open(stream_id) for stream_id in streams)


def test_should_not_keep_a_small_body_waiting_when_a_large_one_was_first() -> None:
    link = Link()
    large, small = link.request(POST, ended=False), link.request(POST, ended=False)
    outbox = Outbox(link.client)
    outbox.put(large, [FRAME] * 4, ended=True)
    outbox.put(small, [b"quick"], ended=True)

    assert outbox.pump(limits.H2_MAX_FRAME_BYTES + 1) == [large, small]


def test_should_wait_for_the_window_when_it_is_used_up() -> None:
    link = Link()
    stream_id, other = link.request(POST, ended=False), link.request(POST, ended=False)
    outbox = Outbox(link.client)
    window = limits.H2_REQUEST_WINDOW_BYTES
    outbox.put(stream_id, [FRAME[:window], b"more"], ended=True)
    while outbox.pump(limits.H2_WRITE_BYTES):
        link.run()
    assert outbox.pending(stream_id) == len(b"more")
    assert not outbox.has_ready

    outbox.put(other, [b"x"], ended=True)
    assert outbox.pump(limits.H2_WRITE_BYTES) == [other], "a window is a stream's own"
    link.server.credit_stream(stream_id, window)
    link.run()
    outbox.unblock(other)
    assert not outbox.has_ready
    outbox.unblock(stream_id)
    assert outbox.pump(limits.H2_WRITE_BYTES) == [stream_id]
    assert not outbox.is_open(stream_id)


def test_should_let_out_as_much_as_the_connections_window_takes() -> None:
    client = Engine(Role.CLIENT)  # It has not heard of the server's windows: 64 KiB for all streams together.
    outbox = Outbox(client)
    streams = [client.open_stream(POST, ended=False) for _ in range(40)]
    for stream_id in streams:
        outbox.put(stream_id, [FRAME[:10_000]], ended=True)
    sent = outbox.pump(limits.H2_WRITE_BYTES)
    assert sent == streams[:7], "the seventh in part"
    assert outbox.pump(limits.H2_WRITE_BYTES) == []

    client.receive_data(frames.pack_settings({}) + frames.pack_window_update(0, 3))
    assert outbox.has_ready
    assert len(outbox.pump(limits.H2_WRITE_BYTES)) == 1, "the others are not even looked at"
    assert outbox.pump(limits.H2_WRITE_BYTES) == []
    outbox.discard(streams[-1])
    client.receive_data(frames.pack_window_update(0, 10 << 20))
    while outbox.pump(limits.H2_WRITE_BYTES):
        pass
    assert not any(outbox.is_open(stream_id) for stream_id in streams)


def test_should_keep_nothing_when_a_stream_is_discarded() -> None:
    link = Link()
    stream_id = link.request(POST, ended=False)
    outbox = Outbox(link.client)
    outbox.put(stream_id, [FRAME], ended=True)
    outbox.discard(stream_id)
    outbox.discard(stream_id)
    link.client.reset(stream_id, ErrorCode.CANCEL)
    outbox.put(stream_id, [b"late"], ended=True)

    assert outbox.pending(stream_id) == 0
    assert outbox.pump(limits.H2_WRITE_BYTES) == []
