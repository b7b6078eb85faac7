"""Moments, and what Go's `time.Parse` says where one is none."""

import pytest

from headrace.dev.api.status import StatusError
from headrace.dev.api.typed_members import check_micro_times, check_times

_MICRO = "2006-01-02T15:04:05.000000Z07:00"


def test_should_bring_a_micro_time_to_utc() -> None:
    holder = {"at": "2026-11-21T10:00:00.000001+01:00", "absent": None}
    check_micro_times("Lease", holder, ("at", "absent", "unknown"))
    assert holder == {"at": "2026-11-21T09:00:00.000001Z", "absent": None}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tomorrow", f'"tomorrow" as "{_MICRO}": cannot parse "tomorrow" as "2006"'),
        ("2026-11-21", f'"2026-11-21" as "{_MICRO}": cannot parse "" as "T"'),
        ("2026-11-21T09:00:00Z", f'"2026-11-21T09:00:00Z" as "{_MICRO}": cannot parse "Z" as ".000000"'),
        ("2026-11-21T09:00:00.000000", f'"2026-11-21T09:00:00.000000" as "{_MICRO}": cannot parse "" as "Z07:00"'),
        ("2026-13-21T09:00:00.000000Z", '"2026-13-21T09:00:00.000000Z": month out of range'),
        ("2026-11-31T09:00:00.000000Z", '"2026-11-31T09:00:00.000000Z": day out of range'),
        ("2026-11-21T25:00:00.000000Z", '"2026-11-21T25:00:00.000000Z": hour out of range'),
        ("2026-11-21T09:00:00.000000Zoo", '"2026-11-21T09:00:00.000000Zoo": extra text: "oo"'),
    ],
)
def test_should_name_the_part_that_cannot_be_read(text: str, complaint: str) -> None:
    with pytest.raises(StatusError) as refused:
        check_micro_times("Lease", {"at": text}, ("at",))
    assert refused.value.message == f'Lease in version "v1" cannot be handled as a Lease: parsing time {complaint}'


def test_should_read_a_time_with_or_without_fractions() -> None:
    check_times("Event", {"at": "2026-11-21T09:00:00Z", "later": "2026-11-21T09:00:00.5+01:00"}, ("at", "later"))
    with pytest.raises(StatusError, match='cannot parse "tomorrow" as "2006"'):
        check_times("Event", {"at": "tomorrow"}, ("at",))
