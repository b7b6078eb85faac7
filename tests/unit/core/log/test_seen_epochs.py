"""What a broker has promised, as a file."""

import pytest

from headrace.core.log.checkpoints import (
    EPOCHS_SEEN_FILE,
    DamagedFileError,
    format_epochs_seen,
    parse_epochs_seen,
    raised,
    seal,
)
from headrace.core.types import LeaderEpoch, PartitionId, PartitionKey, TopicUid

KEY = PartitionKey(TopicUid("6f0c-11"), PartitionId(0))
OTHER = PartitionKey(TopicUid("6f0c-11"), PartitionId(1))


def test_should_be_read_as_it_was_written() -> None:
    seen = {KEY: LeaderEpoch(3), OTHER: LeaderEpoch(0)}
    assert parse_epochs_seen(format_epochs_seen(seen)) == seen
    assert parse_epochs_seen(format_epochs_seen({})) == {}


@pytest.mark.parametrize("line", ["6f0c-11 0", "6f0c-11 0 1 2", "6f0c-11 x 1", "6f0c-11 0 x"])
def test_should_refuse_other_lines(line: str) -> None:
    with pytest.raises(DamagedFileError, match="are not rows of a uid"):
        parse_epochs_seen(seal(EPOCHS_SEEN_FILE, [line]))


def test_should_never_fall() -> None:
    known = {KEY: LeaderEpoch(3)}
    assert raised(known, {KEY: LeaderEpoch(2), OTHER: LeaderEpoch(0)}) == {KEY: 3, OTHER: 0}
    assert raised(known, {KEY: LeaderEpoch(4)}) == {KEY: 4}
