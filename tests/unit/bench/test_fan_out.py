"""The yardstick for three copies: every batch gets everywhere, and nothing is left behind."""

from pathlib import Path

import pytest

from bench.fan_out import fan_out


@pytest.mark.parametrize("replicas", [1, 3])
def test_should_say_how_many_batches_get_through_in_a_second(tmp_path: Path, replicas: int) -> None:
    assert fan_out(tmp_path, replicas, 100_000, 20) > 0
    assert list(tmp_path.iterdir()) == []
