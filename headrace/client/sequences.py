"""What a producer's batches for one partition are numbered with, so that a broker knows a repeated one. Pure.

    first drained ──> numbered: (id, epoch, sequence of the first record), the same whenever it is sent again
    given up, or refused for its sequence ──> `restart`: what is numbered from then on belongs to a higher epoch, from 0

A batch that may be written (`may_be_written`) keeps its numbers, whatever happens: under others the broker could not
know it again. One that surely is not gets new ones after a restart, because the batch that it followed is gone. So in a
lane the batches of an old epoch stand before those of a new one, as they were sent.

Invariants: no two batches that may be written have the same numbers; sequences of an epoch have no hole but where a
batch was given up, and after that nothing more is numbered in that epoch.
"""

from dataclasses import dataclass
from typing import Final

from headrace.client.batches import Batch
from headrace.core.records.header import NO_PRODUCER, NOT_IDEMPOTENT, SEQUENCES, ProducerNumbers

_EPOCH_MAX: Final = (1 << 15) - 1
_IDS: Final = 1 << 63


@dataclass(slots=True)
class Sequences:
    producer_id: int
    """`NO_PRODUCER`: nothing is numbered."""
    epoch: int = 0
    next_sequence: int = 0

    def number(self, batch: Batch) -> None:
        """It is about to be sent. Batches come in their order."""
        numbers = batch.numbers
        if self.producer_id == NO_PRODUCER or batch.may_be_written or self._has(numbers):
            return
        batch.numbers = ProducerNumbers(self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.record_count) % SEQUENCES

    def leave_out(self, batch: Batch) -> None:
        """It will not be sent again, or not under its numbers: what follows it cannot go on with them."""
        if batch.numbers is NOT_IDEMPOTENT or not self._has(batch.numbers):
            return
        self.next_sequence = 0
        self.epoch += 1
        if self.epoch > _EPOCH_MAX:
            self.producer_id, self.epoch = (self.producer_id + 1) % _IDS, 0

    def _has(self, numbers: ProducerNumbers) -> bool:
        """Whether they are of the present epoch."""
        return numbers.producer_id == self.producer_id and numbers.producer_epoch == self.epoch
