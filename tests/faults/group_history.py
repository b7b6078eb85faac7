"""What is known of a consumer group in a run with faults: what its members did and were told, what others saw. Pure.

Members write facts down as they happen, each with the time of one clock that all processes of the machine share; the
harness adds what the coordinator told of the group's offsets, whom it killed and whom it stopped, and all records that
can be read in the end. `group_judge` says what is wrong. All of it is of one topic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Given:
    """A record was handed out to a member's user."""

    member: str
    partition: int
    offset: int
    value: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Owning:
    """A member was given a partition, or heard that it has it no more."""

    member: str
    partition: int
    at_s: float
    is_owner: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """Asked of the coordinator by a member's user, or in the name of one that is taken for dead."""

    member: str
    offsets: Mapping[int, int]
    """Partition -> the next offset to read."""
    began_s: float
    ended_s: float
    code: str
    """Of the error; empty: acknowledged."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The group's offsets, as the coordinator told them."""

    began_s: float
    at_s: float
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Death:
    """A member fell silent: killed, stopped or cut off. What it had must go to others."""

    member: str
    partitions: frozenset[int]
    at_s: float
    within_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """A member's process stood still: a record that it had in hand then comes out when it goes on."""

    member: str
    until_s: float


@dataclass(slots=True)
class GroupHistory:
    given: Sequence[Given] = ()
    owning: Sequence[Owning] = ()
    commits: Sequence[Commit] = ()
    seen: Sequence[Seen] = ()
    deaths: Sequence[Death] = ()
    stops: Sequence[Stop] = ()
    final: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    """All that can be read in the end: partition -> offset -> value."""
