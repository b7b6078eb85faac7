"""The table of a run says what was lost, doubled, and for how long nothing was acknowledged."""

from tests.faults.verdict import Verdict, table


def test_should_show_a_line_for_each_run() -> None:
    during = {"fault": "killed", "seconds": 4.2, "acknowledged": 70}
    good = Verdict(
        "S1", 1, 20.4, [], acknowledged=100, lost=0, duplicated=0, longest_unavailability_s=1.26, progress=[during]
    )
    broken = Verdict("S2", 1, 3.0, ["it broke"])
    head, first, second = table([("the leader is killed", good), ("all brokers are killed", broken)])
    assert head.split() == [
        *("acknowledged", "unknown", "refused", "read", "lost", "doubled"),
        *("longest", "gap", "during", "faults", "took"),
    ]
    assert (
        first.split()[-12:] == ["100", "0", "0", "0", "0", "0", "1.3", "s", "70", "in", "4", "s", "20", "s", "ok"][-12:]
    )
    assert second.split()[-7:] == ["?", "?", "?", "-", "3", "s", "WRONG"]
