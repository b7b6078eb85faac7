"""The promises of the group after every event: its log, as far as it is committed, against what processes believe.

- NoDoubleAssignment: of no partition two members both believe, with valid epochs, that they own it (`checking`).
- NothingCommittedByTheDead: a commit counts only as long as nobody else has been given the partition since it was made.
- SkipsNothing: nobody begins behind a record that was not delivered to the group, and nobody commits one. What a reset
  says is where the group is from then on.
- ResetOnceAndEmpty: a reset is carried out once, and while nobody reads.
- ToldWhatIsCommitted: whatever a coordinator tells is in the committed log, or follows from it.
- ShownIsCommitted: what the ConsumerGroup's status says of members, epochs and resets was committed, all of it at once.
- OffsetsAreKept: offsets go with their topic, with the group, or after as long as people said, counted from when
  the group was empty.
- EpochsOnlyRise, and what `checking.broken` says of records (SoundRecords), at every batch that is committed.

A partition's *tenure* rises whenever another process is given it.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from headrace.core.coordinator import Answer
from headrace.core.groups.entries import Image, Mark, OffsetRecord, OffsetValue
from headrace.core.groups.events import CommitReceived, DeletionReceived, Done, Membership, Reply, ResetResolved
from headrace.core.groups.identity import NO_GROUP_EPOCH, GroupEpoch, MemberId
from headrace.core.groups.status import GroupReport
from headrace.core.types import PartitionKey
from tests.sim.groups.shared import GROUP, Batch, Shared
from tests.sim.reign import BrokenPromiseError
from tests.sim.setting import Setting
from tests.support.group_invariants import Marks, OwnershipClaim, broken, double_owners, fallen, marks

Shown: TypeAlias = tuple[GroupEpoch, GroupEpoch, str, tuple[tuple[MemberId, GroupEpoch], ...]]
"""The part of a status that is more than a summary: epochs, last reset, and members with theirs."""


class Promises:
    def __init__(self, shared: Shared, setting: Setting) -> None:
        self.shared = shared
        self.image = Image(GROUP)
        """The committed image."""
        self.written: set[int] = set()
        """Requests to commit or reset whose records are committed."""
        self.covered: Counter[PartitionKey] = Counter()
        """Everything below was delivered to the group, or a reset passed it."""
        self.tenures: dict[PartitionKey, tuple[MemberId, int]] = {}
        """The last owner of each partition, and how many others before."""
        self._last_tenure: dict[tuple[PartitionKey, MemberId], int] = {}
        self.told: dict[MemberId, Mark] = {}
        """The greatest (epoch, revision) that was ever committed of each member."""
        self._setting = setting
        self._applied = 0
        self._marks: Marks | None = None
        self._resets: set[str] = set()
        self.is_unheard = False
        """True where a broker has created a ConsumerGroup, and the log does not have how long offsets are kept."""
        self._committed: set[Shown] = {_shown(self.image)}
        """The statuses after each batch."""

    # -- the log -----------------------------------------------------------------------------------------------------

    def catch_up(self) -> bool:
        """Catch up, and return whether there was anything."""
        committed = self._setting.checks.committed
        before, self._applied = self._applied, len(committed)
        for entry in committed[before:]:
            self._apply(self.shared.batches[entry.value])
        return self._applied > before

    def _apply(self, batch: Batch) -> None:
        was_known = self.image.is_known
        if isinstance(batch.cause, CommitReceived):
            self._check_commit(batch.cause)
        elif isinstance(batch.cause, ResetResolved):
            self._check_reset(batch.cause)
        if isinstance(batch.cause, DeletionReceived):
            self._setting.counts["committed: deletion"] += 1
        else:
            self._check_forgotten(batch)
        for entry in batch.entries:
            self.image.apply(entry)
        self._hand_over()
        self._committed.add(_shown(self.image))
        problems = broken(self.image)
        after = marks(self.image)
        if self._marks is not None and was_known and self.image.is_known:
            fell = fallen(self._marks, after)
            if fell:
                raise BrokenPromiseError("EpochsOnlyRise", str(fell))
        if problems:
            raise BrokenPromiseError("SoundRecords", str(problems))
        self._marks = after
        for member, mark in after.members.items():
            self.told[member] = max(mark, self.told.get(member, (NO_GROUP_EPOCH, 0)))
        if not self.image.is_known:
            # Whoever reads on begins anew.
            self.covered.clear()
            self._resets.clear()

    def _hand_over(self) -> None:
        for partition, member in self.image.owners.items():
            before, number = self.tenures.get(partition, (MemberId(""), 0))
            if before != member:
                self.tenures[partition] = (member, number + 1)
                self._last_tenure[partition, member] = number + 1

    def _check_commit(self, commit: CommitReceived) -> None:
        self.written.add(commit.request)
        sent = self.shared.commits[commit.request]
        for partition, value in commit.offsets.items():
            if sent.tenures[partition] != self.tenures[partition][1]:
                what = f"{commit.member} commits {value.offset} of {partition}, which is {self.tenures[partition]}'s"
                raise BrokenPromiseError("NothingCommittedByTheDead", what)
            if value.offset > self.covered[partition]:
                what = f"{value.offset} of {partition} is committed, delivered are {self.covered[partition]}"
                raise BrokenPromiseError("SkipsNothing", what)

    def _check_reset(self, reset: ResetResolved) -> None:
        self.written.add(reset.request)
        if self.image.members or reset.id in self._resets:
            raise BrokenPromiseError("ResetOnceAndEmpty", f"{reset.id} with {[*self.image.members]}")
        self._resets.add(reset.id)
        self._setting.counts["committed: reset"] += 1
        for partition, value in reset.offsets.items():
            self.covered[partition] = value.offset

    def _check_forgotten(self, batch: Batch) -> None:
        for entry in batch.entries:
            if not isinstance(entry, OffsetRecord) or entry.value is not None:
                continue
            partition = entry.key.partition
            known = self.image.offsets.get(partition)
            if known is None or partition.uid in self.shared.deleted:
                continue
            self._setting.counts["committed: offset expired"] += 1
            if self.image.members or not self._is_old(known):
                what = f"{partition} is forgotten, {known}, empty since {self.image.group.empty_since_ms}"
                raise BrokenPromiseError("OffsetsAreKept", what)

    def _is_old(self, value: OffsetValue) -> bool:
        """Return whether an offset is old by any version of the resource that people wrote, as a coordinator may not
        have seen the last; where they set nothing, deleted what they had set, or it was gone before it was read, by
        those of brokers."""
        age_ms = self._setting.now_ms - max(value.committed_ms, self.image.group.empty_since_ms)
        said, is_said = set(), False
        for each in self.shared.resource.versions:
            if each is not None and not (each.auto_created and is_said and not self.is_unheard):
                said.add(each.spec.offsets_retention_ms)
                is_said = not each.auto_created and not each.deleting
        return any(retention_ms is not None and retention_ms <= age_ms for retention_ms in said)

    # -- what is told ------------------------------------------------------------------------------------------------

    def tell(self, answer: Answer[Reply], member: MemberId) -> None:
        """Check an answer that a coordinator sends."""
        self.catch_up()
        match answer.reply:
            case Membership(epoch, revision) if (epoch, revision) > self.told.get(member, (NO_GROUP_EPOCH, 0)):
                what = f"{member} is told {(epoch, revision)}, committed is {self.told.get(member)}"
                raise BrokenPromiseError("ToldWhatIsCommitted", what)
            case Done() if answer.request in self.shared.commits and answer.request not in self.written:
                raise BrokenPromiseError("ToldWhatIsCommitted", f"commit {answer.request} of {member}")

    def show(self, report: GroupReport) -> None:
        """Check a report that a coordinator is about to show in the ConsumerGroup's status."""
        self.catch_up()
        members = tuple((each.member, each.epoch) for each in report.members)
        shown = (report.group_epoch, report.assignment_epoch, report.last_reset, members)
        if shown not in self._committed:
            raise BrokenPromiseError("ShownIsCommitted", f"{report.state}: {shown}")

    # -- processes ---------------------------------------------------------------------------------------------------

    def takes(self, partition: PartitionKey, member: MemberId) -> int:
        """Note that a process got, maybe long ago, the partition as its own."""
        return self._last_tenure.get((partition, member), 0)

    def delivers(self, partition: PartitionKey, member: MemberId, first: int, end: int) -> None:
        """Check records that are handed out: a process that has lost the partition reads for nothing, as it will not
        commit that."""
        self.catch_up()
        if self.image.owners.get(partition) != member:
            return
        if first > self.covered[partition]:
            what = f"{partition} is read from {first}, delivered are {self.covered[partition]}"
            raise BrokenPromiseError("SkipsNothing", what)
        self.covered[partition] = max(self.covered[partition], end)

    def check(self, claims: Iterable[OwnershipClaim]) -> None:
        found = double_owners(self.image, claims)
        if found:
            raise BrokenPromiseError("NoDoubleAssignment", str(found))

    def check_alone(self, partition: PartitionKey, member: MemberId) -> None:
        """Check a process that hands out records while its session is not over by its clock, which is as good as
        any."""
        owner = self.image.owners.get(partition, member)
        if owner != member:
            raise BrokenPromiseError("ReadsWhatItOwns", f"{member} reads {partition}, which is {owner}'s")


def _shown(image: Image) -> Shown:
    members = tuple((member, image.currents[member].epoch) for member in sorted(image.members))
    return image.group.epoch, image.group.assignment_epoch, image.group.last_reset, members
