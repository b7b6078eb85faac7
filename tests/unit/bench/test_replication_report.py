"""The tables about replication: ratios are taken round by round, and what is wanted stands beside."""

from bench.failover import Failovers
from bench.partitions import Partitions
from bench.replication import YARDSTICK, ReplicationRound
from bench.replication_report import render_failovers, render_partitions, render_replication


def test_should_take_the_median_of_the_ratios_of_rounds() -> None:
    rounds = [
        ReplicationRound(
            {YARDSTICK: {1: 30.0, 3: 12.0}, "SDK": {1: one, 3: three}}, {"single": {1: [0.001] * 3, 3: [0.002] * 3}}
        )
        for one, three in ((1000.0, 400.0), (100.0, 50.0), (2000.0, 900.0))
    ]
    table = render_replication(rounds).splitlines()
    assert table[3].split()[-3:] == ["30", "12", "0.40"]
    assert table[4].split() == ["SDK", "1,000", "400", "0.45", ">=", "0.35"]
    assert table[7].split() == ["single", "1.00", "2.00", "2.00"]


def test_should_show_the_median_and_the_worst_stall_of_each_kind() -> None:
    table = render_failovers(Failovers(killed=[0.4, 0.6, 2.0], silent=[10.5])).splitlines()
    assert table[-2].split() == ["killed", "3", "0.60", "2.00", "<=", "1.5"]
    assert table[-1].split()[-5:] == ["1", "10.50", "10.50", "<=", "11"]
    assert "silent" not in render_failovers(Failovers(killed=[0.4], silent=[]))


def test_should_add_up_what_a_cluster_costs_at_rest() -> None:
    found = Partitions(1000, 3, 9.5, {"operator": 0.02, "broker 0": 0.03}, led=333, elected_s=1.5, served_s=2.5)
    table = render_partitions(found).splitlines()
    assert table[0] == "1,000 partitions of 3 replicas on three brokers"
    assert [line.split()[-3] for line in table[4:6]] == ["1.50", "2.50"]
    assert table[-1].split() == ["all", "5.0%", "<=", "10%"]
