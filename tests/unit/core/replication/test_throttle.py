"""How fast those who are far behind are sent what they lack."""

from headrace.core.limits import REPLICATION_READ_BYTES
from headrace.core.replication.leader_stream import Throttle


def test_should_not_wait_without_a_rate() -> None:
    throttle = Throttle(None)
    throttle.took(1 << 40, 0)
    assert (throttle.wait_ms(0), throttle.piece_bytes) == (0, REPLICATION_READ_BYTES)


def test_should_keep_the_rate_in_small_pieces() -> None:
    rate, now_ms, taken = 100_000, 5_000, 0
    throttle = Throttle(rate)
    while now_ms < 15_000:
        now_ms += throttle.wait_ms(now_ms)
        throttle.took(throttle.piece_bytes, now_ms)
        taken += throttle.piece_bytes
    assert throttle.piece_bytes == rate // 4
    assert abs(taken - 10 * rate) <= rate // 2


def test_should_not_save_up_what_was_not_used() -> None:
    throttle = Throttle(1000)
    throttle.took(1000, 0)
    assert throttle.wait_ms(0) == 1000
    throttle.took(1000, 60_000)
    assert throttle.wait_ms(60_000) == 1000


def test_should_take_large_pieces_where_the_rate_allows() -> None:
    assert Throttle(1 << 40).piece_bytes == REPLICATION_READ_BYTES
