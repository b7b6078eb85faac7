"""The ConsumerGroup at the API server: every version of it, compare-and-set, and writes that are on their way there.

Each writer has one on its way at most, and looks again when it has landed or met a conflict; a write may be lost, and
may land after others have begun to coordinate. While the server is away nobody writes, and nobody hears any news.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from headrace.core.resources.consumer_group import GROUP_FINALIZER, ConsumerGroup, ConsumerGroupSpec
from headrace.core.resources.metadata import Metadata
from tests.sim.groups.shared import GROUP
from tests.sim.schedule import Target


class Writer(Protocol):
    @property
    def label(self) -> str: ...
    def wrote(self) -> None:
        """Note that it landed, or that the server has another version."""


@dataclass(eq=False, slots=True)
class Write:
    writer: Writer
    based_on: ConsumerGroup | None
    content: ConsumerGroup | None
    """The new content; None: it is deleted."""
    label: str = field(init=False)

    def __post_init__(self) -> None:
        self.label = self.writer.label


class Resource:
    def __init__(self) -> None:
        self.versions: list[ConsumerGroup | None] = [None]
        """The versions; None: there is none."""
        self.writes: list[Write] = []
        self.is_away = False
        """True while the server is away, for all that has to do with groups."""

    @property
    def stored(self) -> ConsumerGroup | None:
        return self.versions[-1]

    @property
    def editable(self) -> bool:
        return not self.is_away and self.stored is not None and not self.stored.deleting

    def landing(self) -> Sequence[Target]:
        return [] if self.is_away else self.writes

    # -- writers -----------------------------------------------------------------------------------------------------

    def is_written_by(self, writer: Writer) -> bool:
        return any(write.writer is writer for write in self.writes)

    def write(self, writer: Writer, based_on: ConsumerGroup | None, content: ConsumerGroup | None) -> None:
        self.writes.append(Write(writer, based_on, content))

    def land(self, write: Write) -> bool:
        """Land a write, and return whether it did: else there is another version."""
        self.writes.remove(write)
        landed = _version(self.stored) == _version(write.based_on)
        if landed:
            self.put(write.content)
        write.writer.wrote()
        return landed

    # -- people ------------------------------------------------------------------------------------------------------

    def create(self, spec: ConsumerGroupSpec) -> None:
        self.put(ConsumerGroup(Metadata(GROUP.name, GROUP.namespace, finalizers=(GROUP_FINALIZER,)), spec))

    def edit(self, spec: ConsumerGroupSpec) -> None:
        assert self.stored is not None, "it is editable"
        self.put(replace(self.stored, spec=spec))

    def delete(self) -> None:
        """Delete it; it stays until the operator lets it go."""
        assert self.stored is not None, "it is editable"
        self.put(replace(self.stored, metadata=replace(self.stored.metadata, deletion_timestamp="now")))

    def put(self, content: ConsumerGroup | None) -> None:
        if content is None:
            self.versions.append(None)
            return
        metadata, number = content.metadata, str(len(self.versions))
        # As it is read again.
        parsed = ConsumerGroup.parse(content.to_object())
        self.versions.append(
            replace(parsed, metadata=replace(metadata, uid=metadata.uid or number, resource_version=number))
        )


def _version(resource: ConsumerGroup | None) -> str | None:
    return None if resource is None else resource.metadata.resource_version
