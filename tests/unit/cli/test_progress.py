"""What the line of progress says, and that pipes never see it."""

import pytest

from headrace.cli.progress import ProgressCounts, Rate, line, progress, summary


def test_should_say_what_the_rate_is_now_and_not_what_it_was_on_average() -> None:
    rate, tally = Rate(window_s=3.0), ProgressCounts()
    assert rate.of(tally, 0.0) == (0.0, 0.0)
    for second in range(1, 11):
        tally.records += 100
        tally.bytes += 1_000
        assert rate.of(tally, float(second)) == (100.0, 1_000.0)
    for second in range(11, 15):
        last = rate.of(tally, float(second))
    assert last == (0.0, 0.0)


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (None, "1,234,567 records  2,000 records/s  1.0 MiB/s  1:05"),
        (0.456, "1,234,567 records  46 %  2,000 records/s  1.0 MiB/s  1:05"),
        (1.7, "1,234,567 records  100 %  2,000 records/s  1.0 MiB/s  1:05"),
    ],
)
def test_should_show_records_share_rates_and_time(share: float | None, shown: str) -> None:
    assert line(ProgressCounts(1_234_567), (2_000.0, float(1 << 20)), 65.4, share) == shown


@pytest.mark.parametrize(
    ("records", "seconds", "says"),
    [
        (1, 0.04, "produced 1 record to orders in 0.0 s"),
        (2, 60.0, "produced 2 records to orders in 60.0 s"),
        (2_000_000, 4.0, "produced 2,000,000 records to orders in 4.0 s, 500,000 records/s"),
    ],
)
def test_should_sum_up(records: int, seconds: float, says: str) -> None:
    assert summary("produced", records, "to orders", seconds) == says


def test_should_show_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(ProgressCounts(1), lambda: 0.5, shown=True):
        pass
    assert capsys.readouterr() == ("", "")
