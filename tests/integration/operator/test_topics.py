"""The operator process against a Kubernetes API: the embedded one, or whichever HEADRACE_CONTRACT_KUBECONFIG names."""

import signal
from collections import Counter

import pytest

from tests.support.operator import Cluster
from tests.support.waiting import observed

pytestmark = pytest.mark.contract
PAUSED = "headrace.io/paused"


async def test_should_seat_a_topic_and_call_it_ready(cluster: Cluster) -> None:
    await cluster.operator.start()
    await cluster.start_brokers(0, 1, 2)
    created = await cluster.create_topic()
    topic = await cluster.wait_ready()
    (found,) = await cluster.sets()
    assert (found.topic_uid, found.metadata.owners[0].uid) == (created.uid, created.uid)
    assert topic.metadata.finalizers == ("headrace.io/delete-data",)
    leaders = Counter(p.leader for p in found.partitions)
    assert topic.status["leaders"] == "6/6"
    assert topic.status["leadersByBroker"] == " ".join(f"{s.broker}:{n}" for s, n in sorted(leaders.items()) if s)
    event = await cluster.wait_event("AllPartitionsOnline")
    assert event["involvedObject"]["uid"] == created.uid
    assert "kopf stopped" not in cluster.operator.log.read_text()


async def test_should_keep_what_is_placed_when_a_topic_grows(cluster: Cluster) -> None:
    await cluster.start_brokers(0, 1)
    await cluster.operator.start()
    await cluster.create_topic(partitions=98)
    await cluster.wait_ready()
    before = (await cluster.sets())[0].partitions
    await cluster.patch_topic({"spec": {"partitions": 104}})
    topic = await cluster.wait_ready()
    assert topic.status["leaders"] == "104/104"
    assert topic.status["leadersByBroker"] == "0:52 1:52"
    sets = sorted(await cluster.sets(), key=lambda s: s.metadata.name)
    assert [len(s.partitions) for s in sets] == [100, 4]
    assert sets[0].partitions[:98] == before


async def test_should_let_a_topic_go_when_the_brokers_have_deleted_the_data(cluster: Cluster) -> None:
    await cluster.start_brokers(0, 1)
    await cluster.operator.start()
    await cluster.create_topic()
    await cluster.wait_ready()
    await cluster.delete_topic()
    marked = await cluster.wait_sets(lambda sets: all(s.deleting for s in sets), "sets are marked")
    assert len(marked) == 1
    assert await cluster.topic() is not None, "nobody has deleted any data yet"
    await cluster.delete_data()
    await cluster.wait_gone()
    assert await cluster.sets() == []


async def test_should_let_a_topic_go_when_nobody_answers_in_time(cluster: Cluster) -> None:
    await cluster.start_brokers(0)
    await cluster.operator.start("--finalizer-wait", "1s")
    created = await cluster.create_topic()
    await cluster.wait_ready()
    await cluster.delete_topic()
    await cluster.wait_gone()
    assert await cluster.sets() == []
    event = await cluster.wait_event("DataNotDeleted")
    assert event["involvedObject"]["uid"] == created.uid
    assert event["type"] == "Warning"


async def test_should_retain_data_without_a_word_to_the_brokers(cluster: Cluster) -> None:
    await cluster.start_brokers(0)
    await cluster.operator.start()
    await cluster.create_topic(deletionPolicy="Retain")
    topic = await cluster.wait_ready()
    assert topic.metadata.finalizers == ()
    await cluster.delete_topic()
    await cluster.wait_gone()
    await cluster.wait_sets(lambda sets: sets == [], "sets are gone")


async def test_should_wait_for_brokers_and_say_so(cluster: Cluster) -> None:
    await cluster.operator.start()
    await cluster.create_topic()
    await cluster.wait_condition("Ready", "False", "InsufficientBrokers")
    await cluster.start_brokers(0)
    await cluster.wait_ready()


async def test_should_start_afresh_when_a_topic_is_created_again(cluster: Cluster) -> None:
    await cluster.start_brokers(0)
    await cluster.operator.start("--finalizer-wait", "1s")
    old = await cluster.create_topic(deletionPolicy="Retain")
    await cluster.wait_ready()
    await cluster.operator.kill()
    await cluster.delete_topic()
    new = await cluster.create_topic()
    await cluster.operator.start()
    await cluster.wait_ready()
    (found,) = await cluster.sets()
    assert old.uid != found.topic_uid == new.uid


async def test_should_leave_a_paused_topic_alone(cluster: Cluster) -> None:
    await cluster.start_brokers(0)
    await cluster.operator.start()
    await cluster.create_topic()
    await cluster.wait_ready()
    await cluster.patch_topic({"metadata": {"annotations": {PAUSED: "true"}}, "spec": {"partitions": 9}})
    topic = await cluster.wait_condition("Paused", "True", "PausedByAnnotation")
    assert topic.status["leaders"] == "6/6"
    await cluster.patch_topic({"metadata": {"annotations": {PAUSED: None}}})
    await cluster.wait_ready()
    assert sum(len(s.partitions) for s in await cluster.sets()) == 9


async def test_should_call_partitions_offline_when_their_broker_is_lost_and_online_when_it_is_back(
    cluster: Cluster,
) -> None:
    await cluster.start_brokers(0, 1)
    await cluster.operator.start()
    await cluster.create_topic()
    await cluster.wait_ready()
    await cluster.brokers[1].stop()
    topic = await cluster.wait_condition("Ready", "False", "PartitionsOffline")
    assert topic.status["leaders"] == "3/6"
    assert (await cluster.wait_event("PartitionsOffline"))["type"] == "Warning"
    await cluster.brokers[1].start()
    await cluster.take_seats(1)
    assert (await cluster.wait_ready()).status["leaders"] == "6/6"


async def test_should_go_on_where_it_died_when_it_is_killed_in_the_middle(cluster: Cluster) -> None:
    await cluster.start_brokers(0, 1)
    await cluster.operator.start()
    for number in range(8):
        await cluster.create_topic(f"topic-{number}", partitions=250)
    await cluster.wait_sets(lambda sets: len(sets) >= 5, "some sets are there")
    await cluster.operator.kill()
    half = await cluster.sets()
    await cluster.operator.start()
    for number in range(8):
        assert (await cluster.wait_ready(f"topic-{number}")).status["leadersByBroker"] == "0:125 1:125"
    after = {s.metadata.name: s.partitions for s in await cluster.sets()}
    assert len(after) == 24
    assert all(after[s.metadata.name] == s.partitions for s in half)


async def test_should_stop_cleanly_and_write_nothing_when_there_is_nothing_to_do(cluster: Cluster) -> None:
    await cluster.start_brokers(0)
    await cluster.operator.start()
    await cluster.create_topic()
    await cluster.wait_ready()
    before = await observed(cluster.topic, lambda topic: topic is not None and topic.places.seen == 6, "all is noted")
    assert before is not None
    assert await cluster.operator.end(signal.SIGTERM) == 0
    await cluster.operator.start("--metrics-port", "0")
    await cluster.create_topic("other")
    await cluster.wait_ready("other")
    after = await cluster.topic()
    assert after is not None
    assert after.metadata.resource_version == before.metadata.resource_version
    assert [name for name in after.metadata.annotations if "kopf" in name] == []
