"""The tables about consumer groups: what is wanted stands beside, and commits are compared with records."""

from bench.group_commits import Alone, Commits, Writes
from bench.group_moves import Moves
from bench.groups import GroupFigures
from bench.groups_report import render_groups


def test_should_show_what_groups_take_beside_what_is_wanted() -> None:
    table = render_groups(
        GroupFigures(
            joins=[1.0, 1.5, 4.0],
            moves=Moves(killed=[6.25], left=[0.5]),
            alone=Alone(commits=[0.006] * 100, records=[0.004] * 100),
            groups=64,
            seconds=10.0,
            rest=Writes(groups=0, all=12),
            commits=[
                Commits(20, 600.0, [0.1] * 6000, 0.0025, Writes(groups=0, all=13)),
                Commits(1, 800.0, [0.05] * 8000, 0.002, Writes(groups=2, all=15)),
            ],
        )
    ).splitlines()
    joined, killed, left = table[3:6]
    assert joined.split()[-5:] == ["3", "1.50", "4.00", "<=", "5"]
    assert killed.split()[-5:] == ["1", "6.25", "6.25", "<=", "7"]
    assert left.split()[-5:] == ["1", "0.50", "0.50", "<=", "1"]
    record, commit = table[8:10]
    assert record.split()[-2:] == ["4.00", "4.00"]
    assert commit.split()[-4:] == ["6.00", "6.00", "1.50", "1.50"]
    many, one = table[12:14]
    assert table[11].startswith("64 groups commit for 10 s")
    assert many.split() == ["20", "12,000", "600", "100.00", "100.00", "2.50", ">=", "10,000"]
    assert one.split() == ["1", "800", "800", "50.00", "50.00", "2.00"]
    at_rest, busy, last = table[16:]
    assert at_rest.split()[-2:] == ["0", "12"]
    assert busy.split() == ["6,000", "commits", "of", "20", "0", "13", "0"]
    assert last.split() == ["8,000", "commits", "of", "1", "2", "15", "0"]
