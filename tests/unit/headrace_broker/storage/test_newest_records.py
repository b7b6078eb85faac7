"""What is known of segments stays in proportion to how many there are, whoever comes and goes."""

from headrace.core.types import Offset
from headrace_broker.storage.segment_set import NewestRecords


def _never(base: Offset) -> int:
    raise AssertionError(f"segment {base} is known")


def test_should_forget_segments_that_are_gone() -> None:
    newest = NewestRecords()
    bases = [Offset(0)]
    looked_at = list[Offset]()
    for number in range(1, 1000):
        newest.note(bases, Offset(number), newest_ms=number)
        # As retention does: only the last two are left.
        bases = [*bases[-2:], Offset(number)]
    assert newest.first_since(998, bases, _never) == 0
    assert newest.first_since(999, bases, _never) == 1
    assert newest.first_since(1000, bases, _never) == 2

    def look(base: Offset) -> int:
        looked_at.append(base)
        return 0

    newest.first_since(1000, [Offset(number) for number in range(1000)], look)
    assert len(looked_at) > 990
