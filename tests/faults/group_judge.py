"""The oracle of a consumer group: what members were given and committed, against what the group promises. Pure.

every record that is there in the end was given to some member, with the bytes that it has
nobody is given a record before every earlier one of its partition was given to somebody
a member is given nothing of a partition that was given to another after it
a group's offset passes no record that nobody has been given yet, and never goes back
a commit that was acknowledged is seen by whoever asks afterwards
a commit for a partition that went to another is refused
what a member had that fell silent goes to others within its session, and an allowance
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise

from tests.faults.group_history import Commit, Death, Given, GroupHistory, Owning, Seen
from tests.faults.judge import Finding


class GroupWrong(StrEnum):
    NEVER_GIVEN = "a record was given to no member"
    OTHER_BYTES = "a member was given other bytes than those that stay"
    SKIPPED = "given before an earlier record was given to anybody"
    TWO_READERS = "given to a member after its partition was given to another"
    COMMITTED_UNREAD = "the group's offset passed records that nobody had been given"
    WENT_BACK = "the group's offset went back"
    COMMIT_LOST = "an acknowledged commit was not there afterwards"
    COMMITTED_BY_THE_FENCED = "a commit was taken from a member whose partition had gone to another"
    NOT_MOVED = "what a silent member had did not go to another in time"


def judge_group(history: GroupHistory) -> list[Finding]:
    return [
        *_of_final(history),
        *_of_order(history),
        *_of_readers(history),
        *_of_offsets(history),
        *_of_commits(history),
        *(finding for death in history.deaths for finding in _of_death(death, history.owning)),
    ]


# -- records ---------------------------------------------------------------------------------------------------------


def _of_final(history: GroupHistory) -> Iterator[Finding]:
    given: dict[int, set[int]] = defaultdict(set)
    for each in history.given:
        given[each.partition].add(each.offset)
        there = history.final.get(each.partition, {}).get(each.offset)
        if there != each.value:
            what = f"offset {each.offset}, {each.member} was given {each.value!r}, it is {there!r}"
            yield Finding(GroupWrong.OTHER_BYTES, each.partition, what)
    for partition, rows in history.final.items():
        for offset in sorted(rows.keys() - given[partition]):
            yield Finding(GroupWrong.NEVER_GIVEN, partition, f"offset {offset}, {rows[offset]!r}")


def _of_order(history: GroupHistory) -> Iterator[Finding]:
    for partition, given in _by_partition(history.given).items():
        ends = _ends(given)
        for before, each in zip([0, *ends], given, strict=False):
            if each.offset > before:
                what = f"{each.member} was given offset {each.offset}, all others together had come to {before}"
                yield Finding(GroupWrong.SKIPPED, partition, what)


def _by_partition(given: Sequence[Given]) -> dict[int, list[Given]]:
    """In the order of time."""
    found: dict[int, list[Given]] = defaultdict(list)
    for each in sorted(given, key=lambda each: each.at_s):
        found[each.partition].append(each)
    return found


def _ends(given: Sequence[Given]) -> list[int]:
    """After each of them, how far all have come together."""
    ends, end = [], 0
    for each in given:
        end = max(end, each.offset + 1)
        ends.append(end)
    return ends


def _of_readers(history: GroupHistory) -> Iterator[Finding]:
    owners = _Owners(history.owning)
    in_hand = {(stop.member, stop.until_s) for stop in history.stops}
    for partition, given in _by_partition(history.given).items():
        for each in given:
            owner = owners.latest(partition, each.at_s)
            if owner == each.member:
                continue
            stops = [stop for stop in in_hand if stop[0] == each.member and stop[1] <= each.at_s]
            if stops:
                # What it had in hand when it was stopped: one record for each stop, and no more.
                in_hand.discard(max(stops, key=lambda stop: stop[1]))
                continue
            what = f"offset {each.offset} to {each.member} at {each.at_s:.3f} s, it was {owner}'s"
            yield Finding(GroupWrong.TWO_READERS, partition, what)


class _Owners:
    """Who was given each partition last, at any time."""

    def __init__(self, owning: Sequence[Owning]) -> None:
        self._times: dict[int, list[float]] = defaultdict(list)
        self._members: dict[int, list[str]] = defaultdict(list)
        for each in sorted((each for each in owning if each.is_owner), key=lambda each: each.at_s):
            self._times[each.partition].append(each.at_s)
            self._members[each.partition].append(each.member)

    def latest(self, partition: int, at_s: float) -> str:
        found = bisect_right(self._times[partition], at_s)
        return self._members[partition][found - 1] if found else "nobody"


# -- offsets ---------------------------------------------------------------------------------------------------------


def _of_offsets(history: GroupHistory) -> Iterator[Finding]:
    given = _by_partition(history.given)
    times = {partition: [each.at_s for each in found] for partition, found in given.items()}
    ends = {partition: [0, *_ends(found)] for partition, found in given.items()}
    for seen in history.seen:
        for partition, offset in seen.offsets.items():
            passed = ends.get(partition, [0])[bisect_right(times.get(partition, []), seen.at_s)]
            if offset > passed:
                what = f"{offset} at {seen.at_s:.3f} s, members had come to {passed}"
                yield Finding(GroupWrong.COMMITTED_UNREAD, partition, what)
    for earlier, later in pairwise(history.seen):
        for partition, offset in earlier.offsets.items():
            if later.offsets.get(partition, 0) < offset:
                what = f"{later.offsets.get(partition)} at {later.at_s:.3f} s after {offset}"
                yield Finding(GroupWrong.WENT_BACK, partition, what)


def _of_commits(history: GroupHistory) -> Iterator[Finding]:
    owners = _Owners(history.owning)
    for commit in history.commits:
        if commit.code:
            continue
        after = next((seen for seen in history.seen if seen.began_s >= commit.ended_s), None)
        for partition, offset in commit.offsets.items():
            yield from _of_acknowledged(commit, partition, offset, after)
            owner = owners.latest(partition, commit.began_s)
            if owner != commit.member:
                what = f"{offset} of {commit.member} at {commit.began_s:.3f} s, it was {owner}'s"
                yield Finding(GroupWrong.COMMITTED_BY_THE_FENCED, partition, what)


def _of_acknowledged(commit: Commit, partition: int, offset: int, after: Seen | None) -> Iterator[Finding]:
    """Later ones are judged by that they do not go back."""
    if after is not None and after.offsets.get(partition, -1) < offset:
        what = f"{offset} of {commit.member} at {commit.ended_s:.3f} s, it was {after.offsets.get(partition)} then"
        yield Finding(GroupWrong.COMMIT_LOST, partition, what)


# -- those who fall silent -------------------------------------------------------------------------------------------


def moved_after_s(death: Death, partition: int, owning: Sequence[Owning]) -> float | None:
    """How long after its owner fell silent a partition was given to another; None: never."""
    taken = [
        each.at_s - death.at_s
        for each in owning
        if each.partition == partition and each.is_owner and each.member != death.member and each.at_s > death.at_s
    ]
    return min(taken, default=None)


def _of_death(death: Death, owning: Sequence[Owning]) -> Iterator[Finding]:
    for partition in sorted(death.partitions):
        after_s = moved_after_s(death, partition, owning)
        if after_s is None or after_s > death.within_s:
            when = "never" if after_s is None else f"after {after_s:.1f} s"
            what = f"{death.member} had it, it moved {when}, allowed were {death.within_s:g} s"
            yield Finding(GroupWrong.NOT_MOVED, partition, what)


def repeated(history: GroupHistory) -> int:
    """Records that were given again: what at-least-once costs."""
    return len(history.given) - len({(each.partition, each.offset) for each in history.given})


def offsets_of(final: Mapping[int, Mapping[int, str]]) -> dict[int, int]:
    """Where each partition ends."""
    return {partition: max(rows, default=-1) + 1 for partition, rows in final.items()}
