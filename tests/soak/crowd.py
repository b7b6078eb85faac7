"""All who use a cluster during a soak, started and stopped together."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.soak.load import Dawdler, Follower, KeyedWriter, Trimmer, Writer
from tests.soak.member import TIMEOUT_S, Member
from tests.soak.sdk import SdkReader, SdkWriter
from tests.support.hardy_clients import join_all


@dataclass(slots=True)
class Crowd:
    """All of them."""

    writers: list[Writer] = field(default_factory=list)
    keyed: list[KeyedWriter] = field(default_factory=list)
    followers: list[Follower] = field(default_factory=list)
    dawdlers: list[Dawdler] = field(default_factory=list)
    trimmers: list[Trimmer] = field(default_factory=list)
    sdk_writers: list[SdkWriter] = field(default_factory=list)
    sdk_readers: list[SdkReader] = field(default_factory=list)

    @property
    def members(self) -> Sequence[Member]:
        by_http = [*self.writers, *self.keyed, *self.followers, *self.dawdlers, *self.trimmers]
        return [*by_http, *self.sdk_writers, *self.sdk_readers]

    @property
    def batches_written(self) -> int:
        by_sdk = sum(len(writer.acknowledged) for writer in self.sdk_writers)
        return by_sdk + sum(len(writer.acknowledged) for writer in self.writers)

    @property
    def batches_read(self) -> int:
        by_sdk = sum(len(reader.seen) for reader in self.sdk_readers)
        return by_sdk + sum(len(follower.seen) for follower in self.followers)

    @property
    def batches_skipped(self) -> int:
        """Deleted before they could be read."""
        gaps = [gap for follower in self.followers for gap in follower.skipped]
        gaps += [gap for reader in self.sdk_readers for skipped in reader.skipped.values() for gap in skipped]
        return sum(map(len, gaps))

    def start(self) -> None:
        for member in self.members:
            member.start()

    def stop(self) -> None:
        hanging = join_all(self.members, 2 * TIMEOUT_S)
        for member in self.members:
            member.troubles.wrong += [f"{name} hangs" for name in hanging if name == member.name]
