"""The oracle of a group finds each kind of wrong in histories made by hand, and nothing in a good one."""

from dataclasses import replace

import pytest

from tests.faults.group_history import Commit, Death, Given, GroupHistory, Owning, Seen, Stop
from tests.faults.group_judge import GroupWrong, judge_group, moved_after_s, repeated
from tests.faults.members import SESSION_S

VALUES = {offset: f"value-{offset}" for offset in range(6)}


def given(member: str, offset: int, at_s: float) -> Given:
    return Given(member, 0, offset, VALUES.get(offset, "none"), at_s)


def owns(member: str, at_s: float, *, is_owner: bool = True) -> Owning:
    return Owning(member, 0, at_s, is_owner)


def commit(member: str, offset: int, began_s: float, code: str = "") -> Commit:
    return Commit(member, {0: offset}, began_s, began_s + 0.1, code)


def seen(offset: int, at_s: float) -> Seen:
    return Seen(at_s - 0.1, at_s, {0: offset})


def good() -> GroupHistory:
    """Member a reads three records, commits two and dies; b goes on from there, and the dead is refused."""
    return GroupHistory(
        given=[given("a", 0, 1), given("a", 1, 2), given("a", 2, 3)]
        + [given("b", offset, 8 + offset) for offset in range(2, 6)],
        owning=[owns("a", 0.5), owns("b", 9)],
        commits=[commit("a", 2, 2.5), commit("a", 0, 9.5, "FencedMember"), commit("b", 6, 14)],
        seen=[seen(0, 0.8), seen(2, 3), seen(2, 9), seen(6, 15)],
        deaths=[Death("a", frozenset({0}), 4, SESSION_S + 1)],
        final={0: VALUES},
    )


def kinds(history: GroupHistory) -> set[str]:
    return {finding.kind for finding in judge_group(history)}


def test_should_find_nothing_when_the_group_kept_its_promises() -> None:
    history = good()
    assert judge_group(history) == []
    assert repeated(history) == 1
    assert moved_after_s(history.deaths[0], 0, history.owning) == 5


BAD: dict[GroupWrong, dict[str, object]] = {
    GroupWrong.NEVER_GIVEN: {"final": {0: {**VALUES, 6: "value-6"}}},
    GroupWrong.OTHER_BYTES: {"final": {0: {**VALUES, 3: "another"}}},
    GroupWrong.SKIPPED: {"given": [*(each for each in good().given if each.offset != 2), given("b", 2, 14)]},
    GroupWrong.TWO_READERS: {"given": [*good().given, given("a", 3, 12)]},
    GroupWrong.COMMITTED_UNREAD: {"seen": [seen(2, 1.5), seen(6, 15)]},
    GroupWrong.WENT_BACK: {"seen": [seen(2, 3), seen(0, 10), seen(6, 15)]},
    GroupWrong.COMMIT_LOST: {"seen": [seen(0, 0.8), seen(0, 3), seen(6, 15)]},
    GroupWrong.COMMITTED_BY_THE_FENCED: {"commits": [commit("a", 0, 9.5)]},
    GroupWrong.NOT_MOVED: {"deaths": [Death("a", frozenset({0}), 4, 4.5)]},
}


@pytest.mark.parametrize("wrong", GroupWrong)
def test_should_find_each_kind_of_wrong(wrong: GroupWrong) -> None:
    assert kinds(replace(good(), **BAD[wrong])) == {wrong}  # type: ignore[arg-type]


def test_should_find_what_vanished_from_the_groups_offsets() -> None:
    assert kinds(replace(good(), seen=[seen(2, 3), Seen(9, 10, {})])) >= {GroupWrong.WENT_BACK}


def test_should_find_a_partition_that_never_moved() -> None:
    history = replace(good(), deaths=[Death("b", frozenset({0}), 14.5, 60)])
    assert [finding.what for finding in judge_group(history)] == ["b had it, it moved never, allowed were 60 s"]


def test_should_allow_one_record_in_hand_of_a_member_that_stood_still() -> None:
    late = [given("a", 3, 12.5)]
    stopped = replace(good(), given=[*good().given, *late], stops=[Stop("a", 12.4)])
    assert kinds(stopped) == set()
    more = replace(stopped, given=[*stopped.given, given("a", 4, 12.6)])
    assert kinds(more) == {GroupWrong.TWO_READERS}
