"""Topics by name and by pattern: what is found, what is refused, and that no pattern takes long."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import InvalidRequestError
from headrace.core.groups.assignment import GROUP_PARTITIONS_MAX, GROUP_TOPICS_MAX, Subscription, bounded
from headrace.core.groups.identity import GroupName, TopicShape, coordinator_partition
from headrace.core.groups.topic_patterns import topic_pattern
from tests.support.group_world import shape

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
