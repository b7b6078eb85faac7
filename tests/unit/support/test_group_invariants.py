"""The judge itself: it finds each thing that must not be."""

from dataclasses import replace

import pytest

from headrace.core.groups.assignment import Subscription
from headrace.core.groups.entries import (
    CurrentKey,
    CurrentRecord,
    CurrentValue,
    Entry,
    GroupKey,
    GroupRecord,
    GroupValue,
    Image,
    MemberKey,
    MemberRecord,
    MemberValue,
    TargetKey,
    TargetRecord,
)
from headrace.core.groups.identity import GroupEpoch
from tests.support.group_invariants import OwnershipClaim, broken, double_owners, fallen, marks
from tests.support.group_world import GROUP, member, part, parts

FIVE, SIX, NINE = GroupEpoch(5), GroupEpoch(6), GroupEpoch(9)


def current(name: str, value: CurrentValue | None) -> CurrentRecord:
    return CurrentRecord(CurrentKey(GROUP, member(name)), value)


def sound() -> Image:
    image = Image(GROUP)
    image.apply(GroupRecord(GroupKey(GROUP), GroupValue(SIX, SIX)))
    for name, number in (("a", 0), ("b", 1)):
        image.apply(MemberRecord(MemberKey(GROUP, member(name)), MemberValue(Subscription(("flights",)))))
        image.apply(TargetRecord(TargetKey(GROUP, member(name)), parts("flights", number)))
        image.apply(current(name, CurrentValue(SIX, 2, {part("flights", number): SIX}, joined=(FIVE, 0))))
    return image


def test_should_find_nothing_when_all_is_well() -> None:
    assert broken(sound()) == []
    claims = [
        OwnershipClaim(member("a"), (SIX, 2), parts("flights", 0)),
        OwnershipClaim(member("b"), (SIX, 2), parts("flights", 1)),
    ]
    assert double_owners(sound(), claims) == []
    assert fallen(marks(sound()), marks(sound())) == []


_TWO = CurrentValue(SIX, 2, {part("flights", 0): SIX})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (current("a", None), "members that are none"),
        (TargetRecord(TargetKey(GROUP, member("c")), frozenset()), "members that are none"),
        (GroupRecord(GroupKey(GROUP), GroupValue(SIX, NINE)), "assigned for epoch 9"),
        (current("a", CurrentValue(SIX, 2, revoking={part("flights", 0): NINE})), "since after its epoch"),
        (current("a", CurrentValue(NINE)), "is in epoch 9"),
        (current("b", CurrentValue(SIX, 2, revoking={part("flights", 0): SIX})), "is in two records: a and b"),
        (TargetRecord(TargetKey(GROUP, member("b")), parts("flights", 0)), "is in two targets: a and b"),
    ],
)
def test_should_find_what_records_must_not_say(entry: Entry, said: str) -> None:
    image = sound()
    image.apply(entry)
    assert said in broken(image)[0]


def test_should_find_who_believes_more_than_is_true_and_may_commit() -> None:
    image = sound()
    more = OwnershipClaim(member("a"), (SIX, 2), parts("flights", 0, 1))
    assert "not in its record" in double_owners(image, [more])[0]
    image.apply(current("b", _TWO))
    both = [
        OwnershipClaim(member("a"), (SIX, 2), parts("flights", 0)),
        OwnershipClaim(member("b"), (SIX, 2), parts("flights", 0)),
    ]
    assert "has two owners: a and b" in double_owners(image, both)[0]


def test_should_let_those_believe_what_they_like_who_are_no_members_in_this_life() -> None:
    strangers = [
        OwnershipClaim(member("c"), (SIX, 2), parts("flights", 0)),
        OwnershipClaim(member("a"), (GroupEpoch(4), 9), parts("flights", 0, 1)),
    ]
    assert double_owners(sound(), strangers) == []


def test_should_find_what_went_back() -> None:
    before, image = marks(sound()), sound()
    image.apply(GroupRecord(GroupKey(GROUP), GroupValue(FIVE, FIVE)))
    image.apply(current("a", replace(_TWO, revision=1)))
    image.apply(current("b", None))
    assert fallen(before, marks(image)) == ["the group went from (6, 6) to (5, 5)", "a went from (6, 2) to (6, 1)"]
