"""An epoch has one history: a state that goes back is believed by nobody."""

import pytest

from headrace.core.replication.seats import SeenEpochs
from headrace.core.types import LeaderEpoch, Seat
from tests.support.partition_sets import partition_state, seat


def seen(*states: tuple[Seat | None, int]) -> SeenEpochs:
    epochs = SeenEpochs(LeaderEpoch(2))
    for leader, epoch in states:
        epochs.note(partition_state(leader=leader, leader_epoch=LeaderEpoch(epoch)))
    return epochs


@pytest.mark.parametrize(
    ("before", "leader", "epoch", "told"),
    [
        ([], seat(1), 2, ""),
        ([], seat(1), 1, "leader epoch is 1, below 2 that this replica has seen"),
        ([(seat(1), 3)], seat(1), 3, ""),
        ([(seat(1), 3)], seat(2), 3, "2@1 leads in epoch 3, in which 1@1 led"),
        ([(seat(1), 3)], seat(1, 2), 3, "1@2 leads in epoch 3, in which 1@1 led"),
        ([(seat(1), 3)], None, 3, ""),
        ([(seat(1), 3), (None, 3)], seat(2), 3, "2@1 leads in epoch 3, in which 1@1 led"),
        ([(seat(1), 3), (None, 4)], seat(2), 4, ""),
        ([(seat(1), 3), (seat(2), 4)], seat(1), 3, "leader epoch is 3, below 4"),
    ],
)
def test_should_say_what_went_back(
    before: list[tuple[Seat | None, int]], leader: Seat | None, epoch: int, told: str
) -> None:
    said = seen(*before).regression(partition_state(leader=leader, leader_epoch=LeaderEpoch(epoch)))
    assert told in said
    assert bool(said) == bool(told)
