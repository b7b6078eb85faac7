"""Stages go when nobody can need them any more, and not before."""

from headrace.core.limits import STAGING_LOOK_INTERVAL_MS
from headrace.core.staging.decisions import STAGE_EXPIRY_MS, Clean, Cleaning, Span, StagedBatch
from headrace.core.types import Offset, PartitionId

P = PartitionId(3)
_WHY = "nobody can need it any more"


def staged(base: int, last: int) -> StagedBatch:
    return StagedBatch(P, Offset(base), Offset(last))


def looked(cleaning: Cleaning, start: int, end: int, *pinned: StagedBatch, now_ms: int = 0) -> int | None:
    """Up to where it is cleaned."""
    orders = cleaning.look({P: Span(Offset(start), Offset(end))}, pinned, now_ms)
    if not orders:
        return None
    (order,) = orders
    assert order == Clean(P, order.before, _WHY)
    return order.before


def test_should_delete_a_run_of_stages_of_no_use_from_the_start() -> None:
    cleaning = Cleaning()
    cleaning.of_no_use([staged(5, 9), staged(0, 4), staged(20, 29), staged(5, 9)])
    assert looked(cleaning, 0, 100) == 10
    cleaning.of_no_use([staged(10, 19)])
    assert looked(cleaning, 10, 100) == 30
    assert looked(cleaning, 30, 100) is None


def test_should_keep_what_is_pinned_and_what_comes_after_it() -> None:
    cleaning = Cleaning()
    cleaning.of_no_use([staged(0, 49)])
    assert looked(cleaning, 0, 100, staged(30, 31), staged(20, 29)) == 20
    assert looked(cleaning, 20, 100) == 50


def test_should_delete_what_nobody_has_committed_for_long() -> None:
    cleaning = Cleaning()
    assert looked(cleaning, 0, 10) is None
    assert looked(cleaning, 0, 20, now_ms=STAGING_LOOK_INTERVAL_MS - 1) is None
    assert looked(cleaning, 0, 30, now_ms=STAGING_LOOK_INTERVAL_MS) is None
    assert looked(cleaning, 0, 99, now_ms=STAGE_EXPIRY_MS - 1) is None
    assert looked(cleaning, 0, 99, now_ms=STAGE_EXPIRY_MS) == 10
    assert looked(cleaning, 10, 99, now_ms=STAGE_EXPIRY_MS + STAGING_LOOK_INTERVAL_MS) == 30
