"""The state that all of the group shares in one run: its writes, its topics, its ConsumerGroup, and the askers."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headrace.core.coordinator import Answer, Refuse
from headrace.core.groups.entries import Entry
from headrace.core.groups.events import CommitReceived, DeletionReceived, Reply, ResetResolved
from headrace.core.groups.identity import GroupName, MemberId, TopicShape
from headrace.core.types import PartitionKey, TopicUid

if TYPE_CHECKING:
    from tests.sim.groups.members import Member
    from tests.sim.groups.resource import Resource

GROUP = GroupName("default", "billing")
FIRST_TOPICS = {"flights": TopicShape(TopicUid("flights-0"), 3), "trains": TopicShape(TopicUid("trains-0"), 2)}

Cause: TypeAlias = CommitReceived | ResetResolved | DeletionReceived


class Asker(Protocol):
    """A process that asks a coordinator for something."""

    @property
    def label(self) -> str: ...
    @property
    def id(self) -> MemberId: ...
    @property
    def is_paused(self) -> bool: ...
    def missed(self) -> None: ...
    def hear(self, told: Answer[Reply] | Refuse) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The batch that a coordinator wrote with one append; the simulated log holds its number."""

    entries: tuple[Entry, ...]
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """A commit, as it was when it was sent."""

    member: "Member"
    tenures: dict[PartitionKey, int]
    offsets: dict[PartitionKey, int]


@dataclass
class Shared:
    resource: "Resource"
    batches: list[Batch] = field(default_factory=list)
    askers: dict[int, Asker] = field(default_factory=dict)
    """The process that waits for the answer to each request."""
    commits: dict[int, Sent] = field(default_factory=dict)
    listings: list[dict[str, TopicShape]] = field(default_factory=lambda: [dict(FIRST_TOPICS)])
    """The namespace's topics in every version; each broker has seen some."""
    deleted: list[TopicUid] = field(default_factory=list)
    ends: dict[PartitionKey, int] = field(default_factory=dict)
    """The end of each partition's records; 0 where nothing was written."""
    last_request: int = 0
    last_id: int = 0

    @property
    def topics(self) -> dict[str, TopicShape]:
        return self.listings[-1]

    def next_request(self) -> int:
        self.last_request += 1
        return self.last_request

    def write(self, batch: Batch) -> int:
        self.batches.append(batch)
        return len(self.batches) - 1
