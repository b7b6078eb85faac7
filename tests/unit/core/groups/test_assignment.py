"""Every partition goes to one subscriber, evenly, and who has it keeps it unless others have too few.

Topics by name and by pattern: what is found, what is refused, and that no pattern takes long.
"""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import InvalidRequestError
from headrace.core.groups.assignment import (
    GROUP_PARTITIONS_MAX,
    GROUP_TOPICS_MAX,
    Assignment,
    Subscriber,
    Subscribers,
    Subscription,
    assign,
    bounded,
    partitions_of,
)
from headrace.core.groups.identity import Assignor, GroupName, MemberId, TopicShape, coordinator_partition
from headrace.core.groups.topic_patterns import topic_pattern
from tests.support.group_world import member, parts, shape

_NAMES = ["customers", "flights", "orders", "refunds"]


@st.composite
def topics(draw: st.DrawFn) -> dict[str, TopicShape]:
    return {name: shape(name, draw(st.integers(1, 9))) for name in _NAMES[: draw(st.integers(1, 4))]}


def all_subscribe(names: list[str], topics: dict[str, TopicShape], has: Assignment) -> dict[MemberId, Subscriber]:
    return {member(name): Subscriber(frozenset(topics), has.get(member(name), frozenset())) for name in names}


members = st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True)


@st.composite
def differing(draw: st.DrawFn) -> tuple[dict[str, TopicShape], dict[MemberId, Subscriber]]:
    found = draw(topics())
    each = st.builds(Subscriber, st.sets(st.sampled_from(sorted(found))).map(frozenset))
    return found, {member(name): draw(each) for name in draw(members)}


def check_complete(assignment: Assignment, subscribers: Subscribers, topics: dict[str, TopicShape]) -> None:
    assert assignment.keys() == subscribers.keys()
    given_out = [partition for partitions in assignment.values() for partition in partitions]
    names = {partition: name for name, each in topics.items() for partition in partitions_of(each)}
    wanted = {p for p, name in names.items() if any(name in one.topics for one in subscribers.values())}
    assert sorted(given_out) == sorted(wanted)
    for each, partitions in assignment.items():
        assert {names[partition] for partition in partitions} <= subscribers[each].topics


@given(differing(), st.sampled_from(Assignor))
def test_should_give_each_partition_to_one_subscriber(
    case: tuple[dict[str, TopicShape], dict[MemberId, Subscriber]], assignor: Assignor
) -> None:
    found, subscribers = case
    assignment = assign(assignor, subscribers, found)
    check_complete(assignment, subscribers, found)
    reversed_order = dict(reversed(subscribers.items()))
    assert assign(assignor, reversed_order, dict(reversed(found.items()))) == assignment


@given(differing(), st.sampled_from(Assignor))
def test_should_change_nothing_when_assigned_again(
    case: tuple[dict[str, TopicShape], dict[MemberId, Subscriber]], assignor: Assignor
) -> None:
    found, subscribers = case
    assignment = assign(assignor, subscribers, found)
    again = {each: one._replace(has=assignment[each]) for each, one in subscribers.items()}
    assert assign(assignor, again, found) == assignment


@given(topics(), members, members)
def test_should_be_even_and_move_no_more_than_it_must(
    found: dict[str, TopicShape], before: list[str], after: list[str]
) -> None:
    had = assign(Assignor.UNIFORM, all_subscribe(before, found, {}), found)
    has = assign(Assignor.UNIFORM, all_subscribe(after, found, had), found)
    check_complete(has, all_subscribe(after, found, {}), found)
    sizes = [len(partitions) for partitions in has.values()]
    assert max(sizes) - min(sizes) <= 1
    stays = [had.get(each, frozenset()) for each in has]
    total, count = sum(each.partitions for each in found.values()), len(has)
    kept = sum(len(has[each] & had.get(each, frozenset())) for each in has)
    size, more = divmod(total, count)
    most = sum(min(len(each), size) for each in stays)
    most += min(more, sum(len(each) > size for each in stays))
    assert kept == most, "whoever stays keeps as much as an equal share allows"


@given(differing())
def test_should_leave_nothing_that_hand_overs_could_make_more_even(
    case: tuple[dict[str, TopicShape], dict[MemberId, Subscriber]],
) -> None:
    found, subscribers = case
    # Everything with the first who may have it: the worst that could be.
    first = {name: min((m for m, one in subscribers.items() if name in one.topics), default="") for name in found}
    worst = {
        each: one._replace(has=frozenset(p for n in one.topics if first[n] == each for p in partitions_of(found[n])))
        for each, one in subscribers.items()
    }
    has = assign(Assignor.UNIFORM, worst, found)
    names = {each.uid: name for name, each in found.items()}
    for giver in has:
        reach, ahead = {giver}, [giver]
        while ahead:
            topics_at = {names[p.uid] for p in has[ahead.pop()]}
            new = {m for m, one in subscribers.items() if one.topics & topics_at} - reach
            reach |= new
            ahead += new
        assert all(len(has[giver]) - len(has[each]) <= 1 for each in reach)


def test_should_cut_topics_of_one_size_at_the_same_places_when_by_range() -> None:
    found = {"flights": shape("flights", 5), "orders": shape("orders", 5), "refunds": shape("refunds", 1)}
    subscribers = {
        member("m2"): Subscriber(frozenset(found), instance="a"),
        member("m1"): Subscriber(frozenset({"flights", "orders"}), instance="b"),
    }
    assert assign(Assignor.RANGE, subscribers, found) == {
        "m2": parts("flights", 0, 1, 2) | parts("orders", 0, 1, 2) | parts("refunds", 0),
        "m1": parts("flights", 3, 4) | parts("orders", 3, 4),
    }


@pytest.mark.parametrize("assignor", Assignor)
def test_should_give_nothing_when_there_is_nothing_or_nobody(assignor: Assignor) -> None:
    assert assign(assignor, {}, {"flights": shape("flights", 2)}) == {}
    assert assign(assignor, {member("a"): Subscriber(frozenset())}, {}) == {"a": frozenset()}


def test_should_forget_what_a_member_may_not_have_any_more() -> None:
    found = {"flights": shape("flights", 2), "orders": shape("orders", 1)}
    subscribers = {
        member("a"): Subscriber(frozenset({"flights"}), parts("flights", 0, 7) | parts("orders", 0) | parts("gone", 0)),
        member("b"): Subscriber(frozenset({"flights"}), parts("flights", 0)),
    }
    assert assign(Assignor.UNIFORM, subscribers, found) == {"a": parts("flights", 0), "b": parts("flights", 1)}


def test_should_spread_each_topic_when_everybody_begins() -> None:
    found = {name: shape(name, 4) for name in _NAMES}
    assignment = assign(Assignor.UNIFORM, all_subscribe([*"abcd"], found, {}), found)
    assert all(len({p.uid for p in partitions}) == 4 for partitions in assignment.values())


names = st.text("ab1-", max_size=6)
atoms = st.sampled_from(
    ["a", "b", "1", ".", "[ab]", "[^a]", "[a-b1]", r"\d", r"\w", r"\-", "[-a]", "[a-]", r"[\da]", "B"]
)
repeats = st.sampled_from(["", "*", "+", "?", "{2}", "{1,}", "{0,2}"])


def _extended(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouped = st.builds("({}){}".format, inner, repeats)
    return st.one_of(st.builds("{}{}".format, inner, inner), st.builds("(?:{}|{})".format, inner, inner), grouped)


patterns = st.recursive(st.builds("{}{}".format, atoms, repeats), _extended, max_leaves=6)


@given(patterns, names)
def test_should_match_as_python_does(pattern: str, name: str) -> None:
    assert topic_pattern(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("[ab]", "ab"),
        ("[^ab]", "cd1-"),
        ("[a-b1]", "ab1"),
        (r"[\da]", "a1"),
        (r"\-", "-"),
        ("[-a]", "a-"),
        ("[a-]", "a-"),
    ],
)
def test_should_match_the_characters_of_a_set(pattern: str, matched: str) -> None:
    assert "".join(filter(topic_pattern(pattern).matches, "abcd1-")) == matched


def test_should_match_the_whole_name_with_and_without_anchors() -> None:
    for pattern in ("flights-.*", "^flights-.*", "flights-.*$", "^flights-.*$", "(flights|orders)-.*|x"):
        assert topic_pattern(pattern).matches("flights-eu")
        assert not topic_pattern(pattern).matches("old-flights-eu")


def test_should_end_at_once_when_a_pattern_would_make_others_try_for_ever() -> None:
    assert not topic_pattern("(a+)+b").matches("a" * 63)
    assert not topic_pattern("(a|a)*(a?){30}b").matches("a" * 63)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a)", "'\\)' without"),
        ("(a", "'\\(' without"),
        ("[a", "'\\[' without"),
        ("[", "'\\[' without"),
        ("a^", "at the start only"),
        ("a$b", "at the end only"),
        ("*a", "nothing to repeat before '\\*'"),
        ("a**", "a repetition of a repetition"),
        ("a+?", "lazy"),
        ("a{2}{2}", "a repetition of a repetition"),
        ("a{x}", "write \\{2\\}"),
        ("a{2", "write \\{2\\}"),
        ("a{1,x}", "write \\{2\\}"),
        ("a{3,2}", "the lesser number first"),
        ("a{513}", "counts up to 512"),
        ("(a{100}){100}", "more than 512 parts"),
        ("(?=a)", "look-around"),
        ("(?P<a>a)", "no flags"),
        (r"(a)\1", "no references"),
        ("a\\", "after"),
        ("[b-a]", "a range"),
        (r"[\d-z]", "a range"),
        ("a" * 257, "257 characters"),
        ("(" * 33 + ")" * 33, "32 deep"),
    ],
)
def test_should_say_what_is_wrong_with_a_pattern(pattern: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        topic_pattern(pattern)


def test_should_find_topics_by_name_and_by_pattern() -> None:
    topics = ["flights", "flights-eu", "orders", "headrace-offsets", "headrace-staging", "headrace-commits"]
    assert Subscription.parse(["orders", "orders", "later"]).resolve(topics) == {"orders"}
    assert Subscription.parse([], "flights.*").resolve(topics) == {"flights", "flights-eu"}
    assert Subscription.parse(["orders"], ".*-eu").resolve(topics) == {"orders", "flights-eu"}
    assert Subscription.parse([], ".*").resolve(topics) == {"flights", "flights-eu", "orders"}
    assert Subscription.parse(["headrace-offsets"], "x").resolve(topics) == {"headrace-offsets"}
    assert Subscription.parse(["b", "a"]) == Subscription.parse(["a", "b"])


@pytest.mark.parametrize(
    ("found", "pattern", "said"),
    [
        ([], "", "subscribes to nothing"),
        (["My_Topic"], "", "try my-topic"),
        (["a"], "(", "without its"),
        ([f"t{n}" for n in range(257)], "", "257 topics"),
    ],
)
def test_should_refuse_what_no_topic_can_be(found: list[str], pattern: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        Subscription.parse(found, pattern)


def test_should_consume_the_first_topics_when_there_are_too_many() -> None:
    many = {f"t{n:04}": shape("x", 1) for n in range(GROUP_TOPICS_MAX + 1)}
    assert [*bounded(many)] == sorted(many)[:GROUP_TOPICS_MAX]
    large = {name: TopicShape(shape(name, 1).uid, GROUP_PARTITIONS_MAX // 2) for name in string.ascii_lowercase}
    assert [*bounded(large)] == ["a", "b"]


def test_should_spread_groups_over_the_partitions_of_the_offsets_topic() -> None:
    found = {coordinator_partition(GroupName("default", f"group-{n}"), 8) for n in range(200)}
    assert found == set(range(8))
    assert coordinator_partition(GroupName("default", "billing"), 16) == 12
