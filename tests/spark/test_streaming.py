"""Streaming queries: limits, ends, and what changes while they run or between two runs."""

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.support.spark_bench import Batches, SparkBench, waits_for, whole
from tests.support.waiting import wait_for


def offsets_of(folder: Path, number: int) -> dict[str, object]:
    """As the checkpoint has them, of one micro-batch."""
    *_, last = (folder / "checkpoint" / "offsets" / str(number)).read_text().splitlines()
    found: dict[str, object] = json.loads(last)
    return found


def test_should_bring_new_records_when_they_are_written(bench: SparkBench) -> None:
    uid = bench.create(3, 2)
    batches = Batches()
    with bench.running(batches) as query:
        waits_for(query, batches, whole(3, 2))
        bench.write(1, 4)
        waits_for(query, batches, whole(4, 6))
    assert offsets_of(bench.folder, 0) == {bench.topic: {"uid": uid, "offsets": {"0": 3, "1": 2}}}


def test_should_begin_at_the_end_when_nothing_else_is_said(bench: SparkBench) -> None:
    bench.create(3)
    batches = Batches()
    with bench.running(batches, startingOffsets=None) as query:
        wait_for(lambda: (bench.folder / "checkpoint" / "sources").exists() or query.lastProgress, "it has begun")
        wait_for(lambda: query.lastProgress is not None, "it has looked")
        bench.write(2)
        waits_for(query, batches, [(0, 3), (0, 4)])


def test_should_take_no_more_than_the_limit_when_much_is_there(bench: SparkBench) -> None:
    bench.create(40, 20, 1)
    batches = bench.read_available(maxOffsetsPerTrigger=20)
    assert batches.all == whole(40, 20, 1)
    assert batches.sizes == [20, 20, 20, 1]
    first = [partition for partition, _ in batches.places[0]]
    assert [first.count(partition) for partition in range(3)] == [12, 7, 1], "each by its share, and none starves"


def test_should_take_about_so_many_bytes_when_a_trigger_is_limited_by_them(bench: SparkBench) -> None:
    bench.create(0, 0)
    for _ in range(10):
        bench.write_values(bytes(10_000))
    batches = bench.read_available(maxBytesPerTrigger="32k")
    assert batches.all == whole(10, 0)
    assert batches.sizes == [3, 3, 3, 1]


def test_should_wait_for_more_when_a_least_is_wanted(bench: SparkBench) -> None:
    bench.create(2)
    batches = Batches()
    with bench.running(batches, minOffsetsPerTrigger=5) as query:
        waits_for(query, batches, whole(2))
        bench.write(3)
        seen = query.lastProgress
        wait_for(lambda: query.lastProgress is not None and query.lastProgress != seen, "it has looked again", 30)
        assert batches.all == whole(2), "three are not worth a trigger"
        bench.write(2)
        waits_for(query, batches, whole(7))
        assert sorted(batches.sizes) == [2, 5]


def test_should_not_wait_for_longer_than_the_delay_when_little_comes(bench: SparkBench) -> None:
    bench.create(2)
    batches = Batches()
    with bench.running(batches, minOffsetsPerTrigger=5, maxTriggerDelay="1s") as query:
        waits_for(query, batches, whole(2))
        bench.write(1)
        waits_for(query, batches, whole(3))


def test_should_go_on_exactly_where_it_was_when_it_starts_again(bench: SparkBench) -> None:
    bench.create(5, 5)
    batches = bench.read_available(maxOffsetsPerTrigger=4)
    bench.write(3, 0)
    again = bench.read_available(startingOffsets="latest")
    assert batches.all == whole(5, 5)
    assert again.all == [(0, 5), (0, 6), (0, 7)], "what options say of the start is for the first run"
    assert bench.read_available().all == []


def test_should_bring_the_same_batch_again_when_it_was_not_finished(bench: SparkBench) -> None:
    bench.create(6)
    failing: list[list[int]] = []

    def fail(frame: object, number: int) -> None:
        failing.append([number])
        raise ValueError("the sink is full")

    writer = bench.writer(Batches(), maxOffsetsPerTrigger=4).foreachBatch(fail)
    with pytest.raises(PySparkException, match="the sink is full"):
        writer.trigger(availableNow=True).start().awaitTermination(60)
    bench.write(2)
    batches = bench.read_available(maxOffsetsPerTrigger=1)
    assert batches.places[0] == whole(4)
    assert batches.all == whole(8)
    assert failing == [[0]]


def test_should_end_where_the_log_was_when_it_reads_what_is_available(bench: SparkBench) -> None:
    bench.create(6)
    batches = Batches()

    def write_more(frame: object, number: int) -> None:
        batches.take(frame, number)  # type: ignore[arg-type]  # PySpark's DataFrame.
        bench.write(1)

    query = bench.writer(batches, maxOffsetsPerTrigger=2).foreachBatch(write_more).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert batches.sizes == [2, 2, 2]
    assert batches.all == whole(6)


def test_should_read_partitions_from_their_beginning_when_they_are_added(bench: SparkBench) -> None:
    bench.create(2)
    batches = Batches()
    with bench.running(batches) as query:
        waits_for(query, batches, whole(2))
        bench.add_partitions(3)
        bench.write(0, 3, 1)
        waits_for(query, batches, whole(2, 3, 1))


def test_should_read_topics_when_they_are_new_and_match(bench: SparkBench) -> None:
    bench.create(2, topic=f"{bench.topic}-a")
    batches = Batches()
    with bench.running(batches, subscribePattern=f"{bench.topic}-.*") as query:
        waits_for(query, batches, [(0, 0), (0, 1)])
        bench.create(1, topic=f"{bench.topic}-b")
        waits_for(query, batches, [(0, 0), (0, 0), (0, 1)])


def test_should_cut_micro_batches_when_more_tasks_are_wanted(bench: SparkBench) -> None:
    bench.create(9)
    tasks: list[int] = []
    writer = bench.writer(Batches(), minPartitions=3)
    writer = writer.foreachBatch(lambda frame, number: tasks.append(frame.rdd.getNumPartitions()))
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    assert tasks == [3]


def test_should_say_what_is_there_when_a_limit_holds_it_back(bench: SparkBench) -> None:
    uid = bench.create(6)
    query = bench.writer(Batches(), maxOffsetsPerTrigger=2).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    seen = [source.latestOffset for progress in query.recentProgress for source in progress.sources]
    assert {"uid": uid, "offsets": {"0": 6}} in [json.loads(each)[bench.topic] for each in seen if each]


def test_should_fail_when_its_topic_was_created_again(bench: SparkBench) -> None:
    bench.create(3)
    bench.read_available()
    bench.delete()
    bench.create(2)
    with pytest.raises(PySparkException, match=f"topic {bench.topic} was deleted and created again"):
        bench.read_available()


def test_should_start_over_when_that_is_wanted_of_a_topic_created_again(bench: SparkBench) -> None:
    bench.create(3)
    bench.read_available()
    bench.delete()
    bench.create(2)
    assert bench.read_available(onTopicRecreated="restart").all == whole(2)


def test_should_notice_when_records_are_gone(bench: SparkBench) -> None:
    bench.create(3)
    bench.read_available()
    bench.write(4)
    bench.delete_records(5)
    with pytest.raises(PySparkException, match=f"offsets 3 to 5 of {bench.topic}/0 are gone"):
        bench.read_available()
    assert bench.read_available(failOnDataLoss="false").all == [(0, 5), (0, 6)]


def test_should_notice_when_the_log_ends_below_its_position(bench: SparkBench) -> None:
    bench.create(3)
    start = json.dumps({bench.topic: {"0": 9}})
    with pytest.raises(PySparkException, match=f"offset 9 of {bench.topic}/0 is not there any more: its log ends at 3"):
        bench.read_available(startingOffsets=start)
    assert bench.read_available(startingOffsets=start, failOnDataLoss="false").all == []
    bench.write(1)
    assert bench.read_available(failOnDataLoss="false").all == [(0, 3)]


def test_should_name_the_topic_when_there_is_none(bench: SparkBench) -> None:
    with pytest.raises(PySparkException, match=f"topic {bench.topic} does not exist in namespace default"):
        bench.read_available()


def test_should_know_a_strange_checkpoint_when_it_is_given_one(bench: SparkBench) -> None:
    bench.create(1)
    bench.read_available()
    log = bench.folder / "checkpoint" / "offsets"
    *lines, _ = (log / "0").read_text().splitlines()
    (log / ".0.crc").unlink()
    (log / "0").write_text("\n".join([*lines, '{"flights": {"0": 1}}']))
    bench.write(1)
    with pytest.raises(PySparkException, match=r"which format\('headrace'\) has not written"):
        bench.read_available()
