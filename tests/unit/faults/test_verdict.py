"""The table of a run says what was lost, doubled, and for how long nothing was acknowledged."""

from typing import Any

from tests.faults.verdict import Verdict, gaps, table


def during(fault: str, gap_s: float) -> dict[str, Any]:
    return {"fault": fault, "seconds": 4.2, "acknowledged": 70, "longest_unavailability_s": gap_s}


GOOD = Verdict(
    *("S1", 1, 20.4, []),
    acknowledged=100,
    lost=0,
    duplicated=0,
    unavailability_s={"0": 0.4, "1": 1.26},
    silence_s={"0": 0.2, "1": 0.7},
    progress=[during("broker 0 killed", 0.9), during("broker 2 killed", 1.26), during("scale-down", 0.3)],
)
BROKEN = Verdict("S2", 1, 3.0, ["it broke"])


def test_should_show_a_line_for_each_run() -> None:
    head, first, second = table([("the leader is killed", GOOD), ("all brokers are killed", BROKEN)])
    assert " ".join(head.split()) == (
        "acknowledged unknown refused read lost doubled longest gap of readers faults meanwhile took"
    )
    said = "S1 the leader is killed 100 0 0 0 0 0 1.3 s 0.7 s 3 210 in 13 s 20 s ok"
    assert " ".join(first.split()) == said
    assert " ".join(second.split()) == "S2 all brokers are killed 0 0 0 0 ? ? ? ? 0 - 3 s WRONG"


def test_should_tell_the_longest_gap_of_each_partition_and_of_each_kind_of_fault() -> None:
    assert gaps(GOOD) == [
        "longest without an acknowledgement, by partition: 0: 0.4 s, 1: 1.3 s",
        "... while a broker killed: 1.3 s",
        "... while scale-down: 0.3 s",
    ]
    assert gaps(BROKEN) == []
