"""How long clients had to wait, measured in histories made by hand."""

from tests.faults.figures import progress, silence_s, unavailability_s
from tests.faults.history import Fault, History, Look, Outcome, Poll, Write


def write(began_s: float, ended_s: float, partition: int = 0, outcome: Outcome = Outcome.ACKNOWLEDGED) -> Write:
    return Write("w", 0, partition, b"", began_s, ended_s, outcome)


def test_should_measure_the_longest_time_between_two_acknowledgements() -> None:
    writes = [write(0.0, 0.5), write(1.0, 1.5), write(5.0, 5.5), write(2.0, 2.25, partition=1)]
    assert unavailability_s(History(writes=writes)) == {0: 4.0, 1: 0.25}


def test_should_measure_the_time_before_the_first_acknowledgement_and_after_the_last() -> None:
    unknown = Outcome.UNKNOWN
    late = [write(0.0, 1.0, outcome=unknown), write(4.0, 5.0), write(5.0, 6.0)]
    assert unavailability_s(History(writes=late)) == {0: 5.0}
    early = [write(0.0, 1.0), write(4.0, 6.0, outcome=unknown)]
    assert unavailability_s(History(writes=early)) == {0: 5.0}


def test_should_measure_a_partition_in_which_nothing_was_ever_acknowledged() -> None:
    refused = [write(2.0, 3.0, outcome=Outcome.REFUSED), write(8.0, 9.0, outcome=Outcome.UNKNOWN)]
    assert unavailability_s(History(writes=refused)) == {0: 7.0}


def test_should_measure_the_longest_time_in_which_no_reader_was_answered() -> None:
    polls = [Poll("a", 0, 1.0, ()), Poll("b", 0, 2.0, ()), Poll("a", 0, 9.0, ()), Poll("a", 1, 4.0, ())]
    looks = [Look("a", 0, 6.0, 0), Look("a", 1, 5.5, 0)]
    assert silence_s(History(polls=polls, looks=looks)) == {0: 4.0, 1: 1.5}


def test_should_count_what_was_acknowledged_while_a_fault_lasted() -> None:
    writes = [write(n, n + 0.5) for n in range(4)]
    (during,) = progress(History(writes=writes, faults=[Fault("cut", 1.0, 3.0)]))
    assert (during.fault, during.seconds, during.acknowledged) == ("cut", 2.0, 2)


def test_should_measure_the_longest_gap_of_any_partition_while_a_fault_lasted() -> None:
    writes = [*(write(n, n + 0.5) for n in range(10)), write(0.0, 0.5, 1), write(4.0, 4.5, 1), write(20.0, 20.5, 1)]
    faults = [Fault("cut", 1.0, 9.0), Fault("short", 9.0, 9.25)]
    found = progress(History(writes=writes, faults=faults))
    assert [during.longest_unavailability_s for during in found] == [4.5, 0.25]
    assert [during.longest_unavailability_s for during in progress(History(faults=faults))] == [0.0, 0.0]
