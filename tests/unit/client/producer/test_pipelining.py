"""Several batches of a partition in flight: whatever fails, and whoever is slow, records are written in their order."""

from collections import defaultdict
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.batches import BATCH_OVERHEAD_BYTES, Batch
from headrace.client.producer.deliveries import ThreadRows
from headrace.client.record import TopicPartition
from headrace.core.errors import NotLeaderError

DEPTH = 3
ROW_BYTES = 50


class Model:
    """A sender that may be slow between taking and sending, and brokers that refuse what follows a failure."""

    def __init__(self, random: Random) -> None:
        self.queue: Accumulator[ThreadRows] = Accumulator(ThreadRows, linger_ms=5, timeout_ms=1_000_000)
        self.random = random
        self.now_ms = 0
        self.sent: dict[int, list[bytes]] = defaultdict(list)
        self.written: dict[int, list[bytes]] = defaultdict(list)
        self.channels: dict[TopicPartition, list[Batch] | None] = {}
        """What each holds, unanswered; None where there is none."""
        self.taken: list[Batch] = []
        """By the sender, in order, and not sent yet."""
        self.failed: list[list[Batch]] = []
        """On channels that have failed, which the sender has not heard of."""

    def send(self, partition: int, value: bytes) -> None:
        place = TopicPartition("t", partition)
        self.sent[partition].append(value)
        batch = self.queue.joined_batch(place, ROW_BYTES, BATCH_OVERHEAD_BYTES + 2 * ROW_BYTES)
        if batch is not None:
            batch.add((None, value, 0, ()))
            return
        batch = self.queue.new_rows(place, ROW_BYTES, self.now_ms)
        batch.add((None, value, 0, ()))
        self.queue.put_rows(batch)

    def step(self) -> None:
        self.random.choice((self.take, self.carry, self.answer, self.fail, self.hear))()

    def take(self) -> None:
        if not self.taken:
            self.now_ms = max(self.now_ms + 1, self.queue.next_due_ms() or 0)
            self.taken += self.queue.due(self.now_ms).send

    def carry(self) -> None:
        if not self.taken:
            return
        batch = self.taken.pop(0)
        channel = self.channels.get(batch.partition)
        if channel is not None:
            channel.append(batch)
        elif self.queue.may_go(batch):
            self.channels[batch.partition] = [batch]
            self.queue.pipeline(batch.partition, DEPTH)
        else:
            self.queue.put_back([batch], None, 0)

    def answer(self) -> None:
        for channel in self.channels.values():
            if channel:
                batch = channel.pop(0)
                self.written[batch.partition.partition] += batch.records().column("value").to_pylist()
                self.queue.arrived(batch)

    def fail(self) -> None:
        if not self.channels:
            return
        place = self.random.choice(list(self.channels))
        channel, self.channels[place] = self.channels[place], None
        if channel:
            self.failed.append(channel)

    def hear(self) -> None:
        if self.failed:
            self.queue.put_back(self.failed.pop(0), NotLeaderError("no"), self.now_ms + 1)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=40), st.integers(0, 1 << 32))
def test_should_write_in_order_whatever_fails(sent_to: list[int], seed: int) -> None:
    model = Model(Random(seed))
    for number, partition in enumerate(sent_to):
        model.send(partition, str(number).encode())
        for _ in range(model.random.randrange(6)):
            model.step()
        assert all(len(channel or ()) <= DEPTH for channel in model.channels.values())
    model.queue.close_batches()
    for _ in range(10_000):
        if not model.queue.waiting_batches():
            break
        model.step()
    assert model.written == model.sent
    assert model.queue.buffered_bytes == 0
