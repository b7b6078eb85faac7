"""What is written: in order, large payloads untouched, nothing empty."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.http2.frames import H2_JOINED_BYTES_MAX, Output

LARGE = bytes(H2_JOINED_BYTES_MAX)


@given(st.lists(st.tuples(st.binary(max_size=20), st.lists(st.sampled_from([b"", b"small", LARGE]), max_size=3))))
def test_should_join_what_is_small_and_leave_what_is_large(frames: list[tuple[bytes, list[bytes]]]) -> None:
    output = Output()
    for head, payload in frames:
        output.put(head)
        output.put_payload(tuple(payload))
    buffers = output.take()
    assert b"".join(buffers) == b"".join(head + b"".join(payload) for head, payload in frames)
    assert all(buffers)
    assert sum(buffer is LARGE for buffer in buffers) == sum(payload.count(LARGE) for _, payload in frames)
    assert output.take() == []
