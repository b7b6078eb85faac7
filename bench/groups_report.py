"""The tables about consumer groups. Pure."""

import statistics
from collections.abc import Sequence

from bench.group_commits import Alone, Commits, Writes
from bench.group_moves import SESSION_S
from bench.groups import MEMBERS, GroupFigures

_JOIN_S_WANTED = 5.0
_OFFSETS_PER_S_WANTED = 10_000
_GROUP_WRITES_WANTED = 0
_KILLED_S_WANTED = SESSION_S + 1.0
_LEFT_S_WANTED = 1.0


def render_groups(found: GroupFigures) -> str:
    lines = [
        "consumer groups on three brokers",
        "",
        f"{'':<56}{'times':>8}{'median s':>10}{'worst s':>10}{'wanted':>10}",
        _times(f"{MEMBERS} members join at once: nothing more is to change", found.joins, _JOIN_S_WANTED),
        _times(f"killed (-9), session of {SESSION_S} s: others have all", found.moves.killed, _KILLED_S_WANTED),
        _times("left: others have all", found.moves.left, _LEFT_S_WANTED),
        "",
        *_alone(found.alone),
        "",
        f"{f'{found.groups} groups commit for {found.seconds:g} s, offsets each':<56}{'offsets/s':>12}{'commits/s':>12}"
        f"{'p50 ms':>10}{'p99 ms':>10}{'CPU ms each':>14}{'wanted':>10}",
        *map(_commits, found.commits),
        "",
        f"{f'writes to the Kubernetes API in {found.seconds:g} s':<56}{'ConsumerGroups':>16}{'all':>8}{'wanted':>10}",
        f"{'without a commit':<56}{_writes(found.rest)}",
        *(
            f"{f'{len(each.times_s):,} commits of {each.offsets}':<56}{_writes(each.writes)}{_GROUP_WRITES_WANTED:>10}"
            for each in found.commits
        ),
    ]
    return "\n".join(lines)


def _times(what: str, seconds: Sequence[float], wanted_s: float) -> str:
    median, worst = statistics.median(seconds), max(seconds)
    return f"{what:<56}{len(seconds):>8}{median:>10.2f}{worst:>10.2f}{f'<= {wanted_s:g}':>10}"


def _alone(found: Alone) -> list[str]:
    (commit, commit_high), (record, record_high) = _percentiles(found.commits), _percentiles(found.records)
    return [
        f"{'one after the other, as durable':<56}{'p50 ms':>10}{'p99 ms':>10}{'p50 / record':>14}{'p99 / record':>14}",
        f"{'record, acks=all':<56}{record * 1000:>10.2f}{record_high * 1000:>10.2f}",
        f"{'commit of one offset':<56}{commit * 1000:>10.2f}{commit_high * 1000:>10.2f}"
        f"{commit / record:>14.2f}{commit_high / record_high:>14.2f}",
    ]


def _commits(found: Commits) -> str:
    median, high = _percentiles(found.times_s)
    wanted = f"{f'>= {_OFFSETS_PER_S_WANTED:,}':>10}" if found.offsets > 1 else ""
    return (
        f"{found.offsets:<56}{found.per_s * found.offsets:>12,.0f}{found.per_s:>12,.0f}{median * 1000:>10.2f}"
        f"{high * 1000:>10.2f}{found.cpu_s * 1000:>14.2f}{wanted}"
    )


def _writes(found: Writes) -> str:
    return f"{found.groups:>16}{found.all:>8}"


def _percentiles(times: Sequence[float]) -> tuple[float, float]:
    return statistics.median(times), statistics.quantiles(times, n=100)[98]
