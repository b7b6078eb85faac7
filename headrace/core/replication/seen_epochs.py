"""Which leader epochs has this replica seen, and does the API server say less by now? No I/O.

    a lower epoch than the last one                the API server's data went back
    the last one, under another leader than then   so it did, and somebody was elected again since

Such a state is followed by nobody and led in by nobody: an epoch would have two histories. A later one is fine again,
as `headrace cluster recover` makes it. Owned by each role of a replica, which is told of every state.
"""

from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import LeaderEpoch, Seat


class SeenEpochs:
    def __init__(self, last: LeaderEpoch) -> None:
        self.last = last
        """The greatest that the log holds, or that was ever applied."""
        self._led_by: Seat | None = None
        """Who leads in it, as far as is known."""

    def regression(self, state: PartitionState) -> str:
        """Why this state is not to be believed, as a sentence with the remedy; else empty."""
        remedy = "its data went back; run `headrace cluster recover`"
        epoch, leader = state.leader_epoch, state.leader
        if epoch < self.last:
            return f"the API server's leader epoch is {epoch}, below {self.last} that this replica has seen: {remedy}"
        if epoch == self.last and None not in (leader, self._led_by) and leader != self._led_by:
            return f"the API server says that {leader} leads in epoch {epoch}, in which {self._led_by} led: {remedy}"
        return ""

    def note(self, state: PartitionState) -> None:
        """It is believed."""
        if state.leader is not None or state.leader_epoch > self.last:
            self._led_by = state.leader
        self.last = state.leader_epoch
