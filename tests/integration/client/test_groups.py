"""Members of a group share partitions, go on where it stopped, and commit what they are done with, and no more."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from threading import Thread
from typing import Any, Self

import pytest

from headrace import Consumer, Record, TopicPartition
from headrace.core.errors import BrokerUnreachableError, FencedMemberError, LocalError, PollIntervalExceededError
from tests.support.client_bench import Bench
from tests.support.patience import patient
from tests.support.waiting import wait_for

END = b"end"
FORKS = """
import os, sys
from headrace import Consumer
from headrace.core.errors import LocalError
consumer = Consumer(sys.argv[1], group=sys.argv[1])
records = iter(consumer)
next(records)
if os.fork() == 0:
    for use in (lambda: next(iter(consumer)), consumer.commit):
        try:
            use()
        except LocalError as error:
            assert "before a fork" in error.message, error
        else:
            os._exit(9)
    consumer.close()
    os._exit(0)
assert os.wait()[1] == 0
consumer.commit()
print(len(consumer.assignment()), consumer.position(0))
"""


def end(bench: Bench, partitions: int) -> None:
    """Let members stop that wait for records."""
    with bench.producer() as producer:
        for partition in range(partitions):
            producer.send(bench.topic, END, partition=partition)


def place(bench: Bench, partition: int) -> TopicPartition:
    return TopicPartition(bench.topic, partition)


def committed(bench: Bench) -> dict[int, int]:
    with bench.member(auto_commit=False) as consumer:
        return {partition.partition: offset.offset for partition, offset in consumer.group_offsets().items()}


def numbers(records: list[Record]) -> list[int]:
    return [int(record.value or b"") for record in records if record.value != END]


@dataclass
class Working:
    """A member that reads in a thread of its own, until it reads END."""

    consumer: Consumer
    records: list[Record] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(patient(60))
        assert not self._thread.is_alive(), self.records[-3:]
        assert not self.errors

    def _read(self) -> None:
        try:
            with self.consumer:
                for record in self.consumer:
                    self.records.append(record)
                    if record.value == END:
                        return
        except BaseException as error:
            self.errors.append(error)

    @property
    def partitions(self) -> list[int]:
        return sorted(partition.partition for partition in self.consumer.assignment())


@contextmanager
def working(bench: Bench, partitions: int, *consumers: Consumer) -> Iterator[list[Working]]:
    """All of them, until the end of this."""
    members = [Working(consumer) for consumer in consumers]
    for each in members:
        each.__enter__()
    yield members
    end(bench, partitions)
    for each in members:
        each.__exit__()


def test_should_share_the_partitions_of_a_topic(bench: Bench) -> None:
    bench.fill(200, partitions=4)
    with working(bench, 4, bench.member(), bench.member()) as (first, second):
        wait_for(lambda: len(first.partitions) == len(second.partitions) == 2, "each has two")
        assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]
        bench.fill(200, partitions=4, begin=200)
        wait_for(lambda: len(first.records) + len(second.records) >= 400, "all are read")
    assert sorted(numbers(first.records + second.records)) == list(range(400)), "once each: none died"
    assert {r.partition for r in first.records[-50:]}.isdisjoint(r.partition for r in second.records[-50:])


def test_should_give_everything_to_each_of_two_groups(bench: Bench) -> None:
    bench.fill(100, partitions=3)
    for group in ("audit", "billing"):
        with bench.consumer(group=f"{bench.topic}-{group}") as consumer:
            assert sorted(numbers(list(consumer.records(follow=False)))) == list(range(100))
            assert list(consumer.records(follow=False)) == []


def test_should_go_on_where_the_group_stopped(bench: Bench) -> None:
    bench.fill(30)
    with bench.member() as consumer:
        assert numbers(list(islice(consumer, 10))) == list(range(10))
    with bench.member() as consumer:
        offsets = [offset for batch in consumer.batches(follow=False) for offset in batch.column("offset").to_pylist()]
        assert offsets == list(range(10, 30))
    with bench.member() as consumer:
        assert list(consumer.records(follow=False)) == []


def test_should_read_again_what_failed_and_nothing_before_it(bench: Bench) -> None:
    bench.fill(30)

    def fail_at(consumer: Consumer, offset: int) -> None:
        with consumer:
            for record in consumer:
                if record.offset == offset:
                    raise ZeroDivisionError

    def be_interrupted(consumer: Consumer) -> None:
        with consumer:
            for _ in consumer.batches():
                raise KeyboardInterrupt

    with pytest.raises(ZeroDivisionError):
        fail_at(bench.member(), 12)
    assert committed(bench) == {0: 12}
    with pytest.raises(KeyboardInterrupt):
        be_interrupted(bench.member())
    assert committed(bench) == {0: 12}


def test_should_commit_what_its_user_commits(bench: Bench) -> None:
    bench.fill(30, partitions=2)
    with bench.member(auto_commit=False) as consumer:
        for record in consumer:
            if record.offset == 3:
                break
    assert committed(bench) == {}
    with bench.member(auto_commit=False) as consumer:
        for record in consumer.records(follow=False):
            if record.offset == 3 and record.partition == 1:
                consumer.commit()
                position = consumer.position(place(bench, 1))
                assert consumer.group_offsets()[place(bench, 1)].offset == position == 4
        consumer.commit({place(bench, 0): 7}, metadata="half of it")
        assert consumer.group_offsets()[place(bench, 0)][:2] == (7, "half of it")
        with pytest.raises(FencedMemberError, match="does not have that partition"):
            consumer.commit({place(bench, 0): 8, place(bench, 2): 1})
    assert committed(bench) == {0: 7, 1: 4}


def test_should_pause_resume_and_seek(bench: Bench) -> None:
    bench.fill(40, partitions=2)
    with bench.member() as consumer:
        first = next(iter(consumer))
        consumer.pause(0)
        rest = list(consumer.records(follow=False))
        assert {record.partition for record in rest} == {1}
        consumer.resume(0)
        seen = [first, *consumer.records(follow=False)]
        assert [r.offset for r in seen if r.partition == 0] == list(range(20))
        consumer.seek(place(bench, 1), 18)
        consumer.seek(0, 19)
        assert sorted(numbers(list(consumer.records(follow=False)))) == [37, 38, 39]
        consumer.seek(0, 5)
    assert committed(bench) == {0: 5, 1: 20}


def test_should_hand_out_columns(bench: Bench) -> None:
    bench.fill(100, partitions=2)
    with bench.member() as consumer:
        assert sum(batch.num_rows for batch in consumer.batches(follow=False)) == 100
    assert committed(bench) == {0: 50, 1: 50}


def test_should_tell_of_partitions_that_come_and_go(bench: Bench) -> None:
    bench.fill(20, partitions=2)
    told: list[tuple[str, int]] = []

    def heard(what: str) -> Any:
        return lambda partitions: told.append((what, len(partitions)))

    def revoked(partitions: list[TopicPartition]) -> None:
        told.append(("revoked", len(partitions)))
        first.commit({partitions[0]: 3})

    first = bench.member(auto_commit=False, on_assigned=heard("assigned"), on_revoked=revoked)
    assert len(list(first.records(follow=False))) == 20
    second = bench.member(auto_commit=False, on_assigned=heard("assigned"))
    with working(bench, 2, first, second) as (one, two):
        wait_for(lambda: len(one.partitions) == len(two.partitions) == 1, "each has one")
        wait_for(lambda: len(two.records) >= 7, "the second begins where the first committed")
        moved = two.records[0].partition
        assert two.records[0].offset == 3
    assert told == [("assigned", 2), ("revoked", 1), ("assigned", 1), ("revoked", 1)]
    assert committed(bench)[moved] == 3


def test_should_leave_the_group_for_a_user_who_does_not_come_back(bench: Bench) -> None:
    bench.fill(20, partitions=2)
    lost: list[TopicPartition] = []
    stalled = bench.member(max_poll_interval_ms=1_000, on_lost=lost.extend)
    records = iter(stalled)
    in_hand = next(records)
    with bench.member() as other:
        assert len(list(islice(other, 20))) == 20, "what was in hand is read again"
        with pytest.raises(PollIntervalExceededError, match="longer than max_poll_interval_ms, 1000"):
            stalled.commit({place(bench, in_hand.partition): 1})
        with pytest.raises(PollIntervalExceededError, match="iterate again to join again"):
            next(records)
        assert len(lost) == 2
        assert committed(bench) in ({}, {0: 0, 1: 0})
    assert list(stalled.records(follow=False)) == []
    stalled.close()


def test_should_keep_what_it_had_when_a_static_member_is_restarted(bench: Bench) -> None:
    bench.fill(20, partitions=4)
    told: list[list[TopicPartition]] = []
    first = bench.member(instance_id="pod-0", on_assigned=told.append, on_revoked=told.append)
    second = bench.member(instance_id="pod-1")
    with working(bench, 4, first, second) as (one, two):
        wait_for(lambda: len(one.partitions) == len(two.partitions) == 2, "each has two")
        had, heard = two.partitions, len(told)
        end_of_second = had[0]
        with bench.producer() as producer:
            producer.send(bench.topic, END, partition=end_of_second)
        wait_for(lambda: not two._thread.is_alive(), "the second is gone for a while")
        with Working(bench.member(instance_id="pod-1")) as again:
            wait_for(lambda: again.partitions == had, "its successor has what it had")
            assert len(told) == heard
            end(bench, 4)


def test_should_follow_topics_that_a_pattern_finds(bench: Bench) -> None:
    bench.fill(10)
    with Consumer(pattern=f"{bench.topic}(-.*)?", group=bench.topic, server=bench.server) as consumer:
        assert numbers(list(islice(consumer, 10))) == list(range(10))
        bench.cluster.create_topic(f"{bench.topic}-more")
        with bench.producer() as producer:
            producer.send(f"{bench.topic}-more", "10")
        assert next(iter(consumer)).topic == f"{bench.topic}-more"
        with pytest.raises(LocalError, match="what its pattern finds: say which"):
            consumer.position(0)


def test_should_wait_for_a_topic_that_is_not_there_yet(bench: Bench) -> None:
    with bench.member() as consumer:
        bench.fill(10)
        assert numbers(list(islice(consumer, 10))) == list(range(10))


def test_should_give_up_where_nobody_takes_it_in() -> None:
    with pytest.raises(BrokerUnreachableError, match=r"gave up on the place in group billing after \d+\.\d s"):
        Consumer("flights", group="billing", server="http://127.0.0.1:1", timeout_ms=2_000)


def test_should_read_partitions_that_are_added(bench: Bench) -> None:
    bench.fill(10)
    with bench.member() as consumer:
        assert len(list(islice(consumer, 10))) == 10
        bench.add_partitions(2)
        with bench.producer() as producer:
            producer.send(bench.topic, "10", partition=1)
        assert next(iter(consumer)).partition == 1


def test_should_leave_the_group_to_the_parent_when_a_program_forks(bench: Bench) -> None:
    bench.fill(10)
    done = subprocess.run(
        [sys.executable, "-c", FORKS, bench.topic],
        env={**os.environ, "HEADRACE_SERVER": bench.server},
        capture_output=True,
        text=True,
        timeout=patient(100),
        check=False,
    )
    assert (done.stdout, done.returncode) == ("1 1\n", 0), done.stderr
    assert committed(bench) == {0: 1}


def test_should_say_what_only_members_can_do(bench: Bench) -> None:
    bench.create()
    with bench.consumer() as consumer:
        with pytest.raises(LocalError, match="this consumer is in no group, and commits nothing: make it with group="):
            consumer.commit()
        with pytest.raises(LocalError, match="in no group"):
            consumer.group_offsets()
    consumer = bench.member()
    with pytest.raises(LocalError, match="it reads nothing just now: partitions come and go with its group"):
        consumer.position(0)
    consumer.close()
    with pytest.raises(LocalError, match="this consumer is closed"):
        consumer.commit()
