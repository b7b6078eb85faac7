from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from headrace.core.control.observed import BrokerState
from headrace.core.types import BrokerId
from headrace_operator.metrics import OperatorMetrics
from headrace_operator.observer import Picture
from tests.support.control import ModelApi, broker, topic
from tests.support.replicated import ReplicatedCluster


def values(metrics: OperatorMetrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {
        sample.name + "".join(f"/{value}" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def picture(api: ModelApi) -> Picture:
    return Picture(tuple(api.topics.values()), api.observed)


def test_should_count_topics_partitions_and_brokers_of_its_own_cluster() -> None:
    api = ModelApi.of([topic("a"), topic("b", partitions=3)], [broker(0), broker(1)])
    api.settle()
    other = topic("c", cluster="other")
    api.topics[other.uid] = other
    api.brokers[broker(1).id] = broker(1, state=BrokerState.LOST)
    metrics = OperatorMetrics()
    metrics.seen(picture(api))
    found = values(metrics)
    assert found["headrace_operator_topics"] == 2
    assert found["headrace_operator_partitions"] == 9
    assert found["headrace_operator_offline_partitions"] == 4
    assert found["headrace_operator_brokers/Ready"] == 1
    assert found["headrace_operator_brokers/Lost"] == 1
    assert found["headrace_operator_brokers/Draining"] == 0


def test_should_forget_what_is_gone() -> None:
    api = ModelApi.of([topic()], [broker(0)])
    api.settle()
    metrics = OperatorMetrics()
    metrics.seen(picture(api))
    metrics.seen(picture(ModelApi.of([], [])))
    found = values(metrics)
    assert found["headrace_operator_topics"] == found["headrace_operator_partitions"] == 0
    assert found["headrace_operator_brokers/Ready"] == 0


def test_should_count_elections_that_have_landed() -> None:
    cluster = ReplicatedCluster.of([topic(partitions=3, replicas=3)], [broker(number) for number in range(3)])
    cluster.settle()
    cluster.lose(BrokerId(0))
    metrics = OperatorMetrics()
    for action in cluster.plan():
        metrics.landed(action)
    found = values(metrics)
    assert found["headrace_operator_leader_elections_total"] == 1
    assert found["headrace_operator_isr_shrinks_total"] == 3
    assert found["headrace_operator_unclean_leader_elections_total"] == 0
    metrics.seen(picture(cluster.api))
    assert values(metrics)["headrace_operator_under_replicated_partitions"] == 3


def test_should_tell_with_each_scrape_whether_it_acts() -> None:
    turns, metrics = [True], OperatorMetrics()
    metrics.watch_turn("blue", lambda: turns[-1])
    assert values(metrics)["headrace_operator_acting/blue"] == 1
    turns.append(False)
    assert values(metrics)["headrace_operator_acting/blue"] == 0


def test_should_count_a_broker_that_has_gone_for_good_apart() -> None:
    api = ModelApi.of([], [broker(0), replace(broker(1, state=BrokerState.LOST), clean=True)])
    metrics = OperatorMetrics()
    metrics.seen(picture(api))
    found = values(metrics)
    assert found["headrace_operator_brokers/Gone"] == 1
    assert found["headrace_operator_brokers/Lost"] == found["headrace_operator_brokers/Stopped"] == 0


def test_should_name_the_work_of_the_loop_from_the_start() -> None:
    found = values(OperatorMetrics())
    assert found["headrace_operator_stuck_reconciles"] == 0
    for name in ("reconciles_total", "reconcile_errors_total", "actions_total", "reconcile_seconds_count"):
        assert found[f"headrace_operator_{name}"] == 0


def test_should_count_what_cannot_be_read() -> None:
    metrics = OperatorMetrics()
    metrics.seen(replace(picture(ModelApi.of([], [])), unreadable=3))
    assert values(metrics)["headrace_operator_unreadable_objects"] == 3
