"""Compare-and-set writes of one PartitionSet whose outcome may stay unknown (design section 5). No I/O.

    settled ── write ──> writing ── 200 ──> settled
                            └── anything else ──> undecided ── read, then write again on the same version ──> writing
    writing, undecided ── a newer state is seen, or a read that began meanwhile shows another version ──> settled
    undecided ── a read finds that the object is gone ──> settled
    any ── a read shows older epochs than are known ──> regressed ── a state above all that is known ──> settled

A PUT that timed out may land at any later time, as long as the version that it was based on is the present one. It is
decided by its own 200, by a state with a greater partition epoch, or by a read (a GET without resourceVersion) that
began after it and shows another version: from then on it cannot land. A conflict decides nothing: who answered it may
have seen the first of two attempts. Until it is decided the next attempt goes out on the same version, with greater
partition epochs, so that a lost PUT cannot hold up a partition for ever: one of them lands, or a read shows why not.

A read that shows an older state than one that landed proves that the API server's data went back. Nothing is believed
of that, and nothing written, until somebody has set epochs above what is known (`headrace cluster recover`).

Invariants: one PUT is in flight; whatever is based on a version is forgotten only once that version is known to be
over; no partition epoch of `known` ever falls. Owned by a broker's coordination, one for each PartitionSet that it
holds a part of; told of everything it sees.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from headrace.core.replication.isr import Isr
from headrace.core.replication.seats import older_partitions, supersedes
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import PartitionId, TopicUid


class SetWriter:
    def __init__(self, known: PartitionSet) -> None:
        self.known = known
        """The newest state that is known to have landed; attempts are based on its version."""
        self.regressed: frozenset[PartitionId] = frozenset()
        """Partitions of which the API server shows something else than what has landed, under no greater epoch."""
        self._isrs = {state.id: Isr(state) for state in known.partitions}
        self._in_flight = False
        self._must_read = False

    @property
    def is_writing(self) -> bool:
        return self._in_flight

    @property
    def is_regressed(self) -> bool:
        return bool(self.regressed)

    @property
    def is_undecided(self) -> bool:
        """Something may still land: write again, or read."""
        return any(isr.pending is not None for isr in self._isrs.values())

    @property
    def must_read(self) -> bool:
        """The last attempt has no outcome, and nobody has looked since: to read comes before the next attempt."""
        return self._must_read and not self._in_flight

    def isr(self, partition: PartitionId) -> Isr:
        return self._isrs[partition]

    def write(self, wanted: Iterable[PartitionState], *, regressed: Collection[TopicUid] = ()) -> PartitionSet | None:
        """What to PUT so that these states become true; None where there is nothing to say, or it cannot be said now.

        Partitions that are undecided and not wanted otherwise are written as they were last known. The partition epochs
        of `wanted` are not looked at. Of topics that are `regressed`, as some broker knows, nothing is written, not
        even again.
        """
        if self._in_flight or self.is_regressed or self.known.topic_uid in regressed:
            return None
        states = {state.id: state for state in wanted}
        undecided = {number: isr.state for number, isr in self._isrs.items() if isr.pending is not None}
        changed = [self._attempt(state) for state in (undecided | states).values()]
        if not changed:
            return None
        self._in_flight = True
        return self.known.with_partitions(*changed)

    def landed(self, partition_set: PartitionSet) -> None:
        """200: this is what was written, with its new version. A watch may have shown it before, and more."""
        self._in_flight = self._must_read = False
        self.seen(partition_set)

    def unanswered(self) -> None:
        """A time-out, a broken connection, a conflict, a 5xx: whether it landed, or will, is not known."""
        self._in_flight, self._must_read = False, True

    def seen(self, partition_set: PartitionSet) -> None:
        """By a watch, which may be late and says nothing of what comes after: only greater partition epochs count.

        With the same epochs, all that may be new is around them: that is taken over where nothing depends on `known`.
        """
        if older_partitions(partition_set, self.known):
            return
        is_newer = any(supersedes(state, self._state(state.id)) for state in partition_set.partitions)
        if is_newer or not (self._in_flight or self.is_undecided):
            self._settle(partition_set)

    def read(self, partition_set: PartitionSet, *, based_on: str) -> None:
        """By a GET without resourceVersion that began while `known` had the version `based_on`.

        No PUT leaves while one is under way: whoever owns this has one call at a time.
        """
        self._must_read = False
        version = partition_set.metadata.resource_version
        if based_on != self.known.metadata.resource_version or version == based_on:
            return
        self.regressed = older_partitions(partition_set, self.known)
        if not self.regressed:
            self._settle(partition_set)

    def gone(self) -> None:
        """A GET without resourceVersion, after the last attempt, finds no such object: nothing based on it can land."""
        self._settle(self.known)

    def _attempt(self, state: PartitionState) -> PartitionState:
        isr = self._isrs[state.id]
        attempt = replace(state, partition_epoch=isr.next_epoch)
        self._isrs[state.id] = isr.proposing(attempt)
        return attempt

    def _state(self, partition: PartitionId) -> PartitionState | None:
        isr = self._isrs.get(partition)
        return isr.state if isr is not None else None

    def _settle(self, partition_set: PartitionSet) -> None:
        """The version that every attempt was based on is over."""
        self.known, self.regressed, self._must_read = partition_set, frozenset(), False
        self._isrs = {state.id: Isr(state) for state in partition_set.partitions}
