"""The API server: one PartitionSet under compare-and-set, Leases, calls that are slow, lost, or land late."""

from dataclasses import dataclass, field, replace
from enum import Enum

from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import BrokerId, Incarnation, PartitionId


@dataclass
class Lease:
    incarnation: Incarnation
    renewed_ms: int


class Kind(Enum):
    PUT = "PUT"
    GET = "GET"


@dataclass(eq=False)
class Call:
    """On its way to the server, or back."""

    caller: object
    kind: Kind
    based_on: str
    """Version of what is put; or what the caller knew as it asked."""
    content: PartitionSet | None = None
    is_answered: bool = False
    """The server has acted; its answer is on the way: `content`, or None for a conflict."""
    is_given_up: bool = False
    """The caller waits no longer; the server may act all the same."""


@dataclass
class Api:
    history: list[PartitionSet]
    """Every version, the present one last; a watch is an index in it."""
    leases: dict[BrokerId, Lease] = field(default_factory=dict)

    @property
    def stored(self) -> PartitionSet:
        return self.history[-1]

    def state(self) -> PartitionState:
        return self.stored.partitions[PartitionId(0)]

    def put(self, written: PartitionSet) -> PartitionSet | None:
        """None: a conflict."""
        if written.metadata.resource_version != self.stored.metadata.resource_version:
            return None
        version = str(int(self.stored.metadata.resource_version) + 1)
        self.history.append(replace(written, metadata=replace(written.metadata, resource_version=version)))
        return self.stored

    def act(self, call: Call) -> None:
        assert not call.is_answered, "once"
        call.is_answered = True
        if call.kind is Kind.PUT:
            assert call.content is not None, "a PUT has a body"
            call.content = self.put(call.content)
        else:
            call.content = self.stored
