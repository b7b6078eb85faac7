"""What a member wants to read: topics by name, topics by pattern, or both; and which of those that exist these are.

A pattern is resolved by the coordinator, not by the member: all see the same topics, and a topic that comes or goes
changes the group once. Names of topics that do not exist (yet) are no error: they count from when the topic is there.
Called by `headrace_broker` at its edge, by `targets`, and by the operator.
"""

from collections.abc import Iterable, Mapping

from headrace.core.errors import InvalidRequestError
from headrace.core.groups.identity import TopicShape
from headrace.core.groups.patterns import topic_pattern
from headrace.core.limits import GROUP_PARTITIONS_MAX, GROUP_TOPICS_MAX
from headrace.core.resources.internal_topics import INTERNAL_TOPICS
from headrace.core.resources.names import topic_name_problem
from headrace.core.slotted import dataclass


@dataclass(frozen=True, slots=True)
class Subscription:
    """A value: two that are equal mean the same."""

    names: tuple[str, ...] = ()
    """Sorted, each once."""
    pattern: str = ""
    """Empty: none. It never finds the internal topic."""

    @classmethod
    def parse(cls, names: Iterable[str], pattern: str = "") -> "Subscription":
        """Raises InvalidRequestError: which name, or where in the pattern, and what would do."""
        found = tuple(sorted(set(names)))
        if not found and not pattern:
            raise InvalidRequestError("a member that subscribes to nothing: give topics, a pattern, or both")
        if len(found) > GROUP_TOPICS_MAX:
            raise InvalidRequestError(f"a subscription names {len(found)} topics: at most {GROUP_TOPICS_MAX}")
        problem = next(filter(None, map(topic_name_problem, found)), None)
        if problem is not None:
            raise InvalidRequestError(problem)
        if pattern:
            topic_pattern(pattern)
        return cls(found, pattern)

    def resolve(self, topics: Iterable[str]) -> frozenset[str]:
        """Which of the topics that exist these are."""
        named = frozenset(self.names)
        if not self.pattern:
            return named.intersection(topics)
        pattern = topic_pattern(self.pattern)
        found = (name for name in topics if name not in INTERNAL_TOPICS and pattern.matches(name))
        return named.intersection(topics).union(found)


def bounded(topics: Mapping[str, TopicShape]) -> dict[str, TopicShape]:
    """These by name, as far as one group may consume so many."""
    kept: dict[str, TopicShape] = {}
    partitions = 0
    for name in sorted(topics):
        partitions += topics[name].partitions
        if len(kept) == GROUP_TOPICS_MAX or partitions > GROUP_PARTITIONS_MAX:
            break
        kept[name] = topics[name]
    return kept
