"""Bodies on their way out: order, turns, windows."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core import limits
from headrace.http2 import frames
from headrace.http2.engine import Engine, Outbox, Role
from headrace.http2.events import DataReceived, ErrorCode, StreamEnded
from tests.support.http2 import FRAME, POST, Link


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
