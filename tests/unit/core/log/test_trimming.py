"""From where a log is kept, and which of its segments go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import OffsetOutOfRangeError
from headrace.core.log.retention import log_start_after, recovered_log_start, segments_below
from headrace.core.types import Offset


@pytest.mark.parametrize(("before", "start"), [(0, 3), (3, 3), (4, 4), (9, 9)])
def test_should_move_the_start_forward_only(before: int, start: int) -> None:
    assert log_start_after(Offset(before), log_start=Offset(3), high_watermark=Offset(9), label="x") == start


def test_should_refuse_to_delete_what_is_not_committed() -> None:
    with pytest.raises(
        OffsetOutOfRangeError, match=r"beforeOffset 10 is above .* default/x/0, which holds 3 to 9"
    ) as e:
        log_start_after(Offset(10), log_start=Offset(3), high_watermark=Offset(9), label="default/x/0")
    assert e.value.details == {"logStartOffset": 3, "highWatermark": 9}


@pytest.mark.parametrize(
    ("checkpoint", "start"),
    [(None, 5), (2, 5), (7, 7), (20, 20), (21, 20)],
)
def test_should_start_where_the_checkpoint_says_as_far_as_the_log_reaches(checkpoint: int | None, start: int) -> None:
    known = None if checkpoint is None else Offset(checkpoint)
    assert recovered_log_start(known, first_segment=Offset(5), log_end=Offset(20)) == start


@pytest.mark.parametrize(("start", "dropped"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (99, 2)])
def test_should_drop_a_segment_when_the_log_begins_after_it(start: int, dropped: int) -> None:
    assert segments_below(Offset(start), [Offset(0), Offset(10), Offset(20)]) == dropped


def test_should_drop_nothing_when_there_is_no_segment() -> None:
    assert segments_below(Offset(5), []) == 0


@given(st.lists(st.integers(0, 50), min_size=1, unique=True).map(sorted), st.integers(0, 60))
def test_should_drop_all_segments_that_nobody_needs_but_the_active_one(bases: list[int], start: int) -> None:
    offsets = [Offset(base) for base in bases]
    kept = offsets[segments_below(Offset(start), offsets) :]
    assert kept
    assert kept[0] <= max(start, bases[0]) or len(kept) == 1
    assert len(kept) == 1 or kept[1] > start
    assert segments_below(Offset(start), kept) == 0
