"""Anything may happen to brokers, topics and the operator: what it writes is always safe, and in the end right."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.observed import BrokerState
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import BrokerId, TopicUid
from tests.support.control import broker, topic
from tests.support.examples import examples
from tests.support.replicated import ReplicatedCluster

BROKERS = 6


@dataclass(frozen=True, slots=True)
class Step:
    what: str
    which: int = 0
    conflicts: frozenset[int] = frozenset()


def mostly(weights: dict[str, int]) -> st.SearchStrategy[str]:
    return st.sampled_from([what for what, weight in weights.items() for _ in range(weight)])


of_brokers = {"kill": 6, "lose": 6, "drain": 2, "start": 5, "renew": 4, "give up": 1, "leave": 2, "stay": 1}
of_all = {"notice": 2, "restart operator": 1, "catch up": 3, "plan": 8, "unclean": 2, "clean": 1}
steps = st.one_of(
    st.builds(Step, mostly(of_brokers), st.integers(0, BROKERS - 1)),
    st.builds(Step, mostly(of_all)),
    st.one_of(
        st.builds(Step, st.just("plan some"), st.integers(0, 4), st.frozensets(st.integers(0, 4), max_size=2)),
        st.builds(Step, st.just("replicas"), st.integers(1, 4)),
        st.builds(Step, st.just("min"), st.integers(1, 4)),
        st.builds(Step, st.just("grow"), st.integers(1, 3)),
    ),
)


@st.composite
def clusters(draw: st.DrawFn) -> ReplicatedCluster:
    topics = [
        topic("flights", partitions=draw(st.integers(1, 8)), replicas=draw(st.integers(1, 4))),
        topic("orders", partitions=draw(st.integers(1, 3)), replicas=draw(st.integers(1, 3))),
    ]
    count = draw(st.integers(2, BROKERS))
    cluster = ReplicatedCluster.of(topics, [broker(number, zone="abc"[number % 3]) for number in range(count)])
    cluster.settle()
    return cluster


def take(cluster: ReplicatedCluster, step: Step) -> None:
    to_one: dict[str, Callable[[BrokerId], object]] = {
        "kill": cluster.kill,
        "lose": cluster.lose,
        "drain": cluster.drain,
        "renew": cluster.renew,
        "give up": cluster.give_up,
        "start": cluster.start,
        "leave": cluster.leave,
        "stay": cluster.stay,
    }
    to_all: dict[str, Callable[[], object]] = {
        "notice": cluster.notice,
        "restart operator": cluster.restart_operator,
        "catch up": cluster.catch_up,
        "plan": cluster.plan,
        "plan some": lambda: cluster.plan(step.which, step.conflicts),
    }
    if step.what in to_all:
        to_all[step.what]()
    elif step.what in to_one:
        if step.which in cluster.api.brokers or step.what == "start":
            to_one[step.what](BrokerId(step.which))
    else:
        cluster.api.change("uid-flights", spec=changed_spec(cluster.api.topics[TopicUid("uid-flights")].spec, step))


def changed_spec(spec: TopicSpec, step: Step) -> dict[str, Any]:
    match step.what:
        case "replicas":
            return {"replicas": step.which, "min_insync_replicas": min(spec.min_insync_replicas, step.which)}
        case "min":
            return {"min_insync_replicas": min(step.which, spec.replicas)}
        case "grow":
            return {"partitions": min(16, spec.partitions + step.which)}
        case "unclean" | "clean":
            return {"unclean_leader_election": step.what == "unclean"}
    raise AssertionError(step)


def electable(cluster: ReplicatedCluster, state: PartitionState) -> set[BrokerId]:
    brokers = cluster.api.brokers
    return {
        seat.broker
        for seat in state.isr
        if brokers[seat.broker].seat == seat
        and brokers[seat.broker].state is BrokerState.READY
        and seat.broker in state.replicas
    }


def check_at_rest(cluster: ReplicatedCluster) -> None:
    assert cluster.api.plan() == [], "at rest there is nothing to plan"
    for _, state in cluster.states:
        able = electable(cluster, state)
        if len(state.replicas) > 1 and able:
            assert cluster.api.observed.serves(state.leader)
            preferred = state.target[0]
            if preferred in able - cluster.api.leaving:
                assert state.leader is not None
                assert state.leader.broker == preferred


def check_all_is_well(cluster: ReplicatedCluster) -> None:
    """Everybody lives, nobody leaves, and there are enough of them."""
    for found, state in cluster.states:
        assert not state.adding
        assert not state.removing
        if cluster.api.observed.serves(state.leader):
            assert len(state.replicas) == found.spec.replicas
            assert {seat.broker for seat in state.isr} == {*state.replicas}
    for name in ("flights", "orders"):
        replicas = [state.replicas for found, state in cluster.states if found.full_name.name == name]
        if all(cluster.api.observed.serves(state.leader) for _, state in cluster.states):
            assert unevenness(Counter(broker for each in replicas for broker in each)) <= 2
            assert unevenness(Counter(each[0] for each in replicas)) <= 2


def unevenness(counts: Counter[BrokerId]) -> int:
    each = [counts[BrokerId(number)] for number in range(BROKERS)]
    return max(each) - min(each)


@examples(0.5)
@given(clusters(), st.lists(steps, min_size=8, max_size=40))
def test_should_be_safe_at_every_step_and_right_in_the_end(cluster: ReplicatedCluster, story: list[Step]) -> None:
    for step in story:
        take(cluster, step)
    cluster.settle()
    check_at_rest(cluster)
    for number in range(BROKERS):
        cluster.start(BrokerId(number))
    cluster.api.leaving = frozenset()
    cluster.settle()
    check_at_rest(cluster)
    check_all_is_well(cluster)
