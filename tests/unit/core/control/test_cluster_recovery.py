"""What `headrace cluster recover` decides: nothing for what is well, the greatest log where the API went back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.core.control.broker_reports import BrokerReport, Epochs, HeldLog
from headrace.core.control.cluster_recovery import Cluster, RecoveryPlan, plan_recovery
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionId, PartitionKey, TopicUid
from tests.support.partition_sets import partition_set, partition_state, seat

KEY = PartitionKey(TopicUid("uid-1"), PartitionId(0))
LED_BY_0 = partition_set(partition_state(leader=seat(0)))


def topic(partitions: int = 1, **metadata: Any) -> Topic:
    return Topic.parse(
        {
            "metadata": {"name": "flights", "namespace": "default", "uid": "uid-1", **metadata},
            "spec": {"partitions": partitions, "replicas": 1},
        }
    )


def log(epoch: int, end: int, **more: Any) -> HeldLog:
    return HeldLog(LeaderEpoch(epoch), Offset(end), **more)


def report(broker: int, held: HeldLog | None = None, known: tuple[int, int] = (1, 1)) -> BrokerReport:
    epochs = Epochs(LeaderEpoch(known[0]), PartitionEpoch(known[1]))
    if held is not None and held.leads and held.applied_epoch == NO_EPOCH:
        held = replace(held, applied_epoch=epochs.leader_epoch)
    return BrokerReport(seat(broker, 3), {KEY: epochs}, {KEY: held} if held else {})


def recover(
    *reports: BrokerReport,
    sets: tuple[PartitionSet, ...] = (LED_BY_0,),
    topics: tuple[Topic, ...] = (topic(),),
    silent: Mapping[BrokerId, str] | None = None,
) -> RecoveryPlan:
    return plan_recovery(Cluster(topics, sets, {each.seat.broker: each for each in reports}, silent or {}))


def test_should_leave_alone_what_is_well() -> None:
    plan = recover(report(0, log(1, 100, leads=True)), report(1))
    assert (plan.writes, plan.recovered, plan.stuck, plan.online) == ((), (), (), 1)


def test_should_tell_of_records_that_no_replica_has() -> None:
    led = partition_set(partition_state(leader=seat(0), leader_epoch=LeaderEpoch(7)))
    reports = (report(0, log(7, 1, leads=True), known=(7, 1)), report(1, log(5, 100)), report(2, log(-1, 0)))
    plan = recover(*reports, sets=(led,))
    (left,) = plan.left_behind
    assert (left.place, left.broker, left.log) == ("default/flights/0", 1, log(5, 100))
    assert (plan.writes, plan.online, plan.offline) == ((), 1, ())


def test_should_elect_the_only_replica_above_all_epochs_when_the_api_went_back() -> None:
    plan = recover(report(0, log(5, 100), known=(5, 9)), report(1, known=(6, 7)))
    (recovered,) = plan.recovered
    state = recovered.state
    assert (state.leader, state.isr, state.replicas) == (seat(0, 3), (seat(0, 3),), (0,))
    assert (state.leader_epoch, state.partition_epoch) == (7, 10)
    assert recovered.place == "default/flights/0"
    assert recovered.reason == "the API says leader epoch 1, but brokers have seen 6"
    assert recovered.losses == ()
    assert plan.writes == (replace(LED_BY_0, partitions=(state,)),)
    assert (plan.online, plan.offline) == (0, (recovered,))


def test_should_raise_the_partition_epoch_alone_when_only_that_went_back() -> None:
    (recovered,) = recover(report(0, log(1, 100, leads=True), known=(1, 4))).recovered
    assert recovered.reason == "the API says partition epoch 1, but brokers have seen 4"
    assert (recovered.state.leader_epoch, recovered.state.partition_epoch) == (2, 5)


def test_should_go_back_to_the_broker_that_has_the_records_when_another_was_given_the_partition() -> None:
    placed_anew = partition_set(partition_state(leader=seat(1)))
    plan = recover(report(0, log(1, 100)), report(1, log(1, 5, leads=True)), sets=(placed_anew,))
    (recovered,) = plan.recovered
    assert (recovered.state.leader, recovered.state.replicas) == (seat(0, 3), (0,))
    assert recovered.state.leader_epoch == 2
    assert recovered.reason == "its records are on broker 0, and the API places it on broker 1"
    (loss,) = recovered.losses
    assert loss == "what broker 1 has taken since, offsets 0 to 5 (exclusive), is left behind on its disk"


def test_should_keep_the_number_of_replicas_when_it_adds_the_one_that_has_the_records() -> None:
    placed_anew = partition_set(partition_state(leader=seat(1), replicas=(BrokerId(1), BrokerId(2))))
    reports = (report(0, log(1, 100)), report(1, log(-1, 0, leads=True)), report(2, log(-1, 0)))
    (recovered,) = recover(*reports, sets=(placed_anew,)).recovered
    assert recovered.state.replicas == (0, 1)
    assert recovered.reason.endswith("the API places it on brokers 1, 2")
    assert recovered.losses == ()


def test_should_say_when_the_best_log_is_not_intact() -> None:
    (recovered,) = recover(report(0, log(5, 100, damage="committed records are damaged"))).recovered
    assert recovered.losses == ("the log of broker 0 is not intact: committed records are damaged",)


def test_should_not_speak_of_losses_when_nothing_was_ever_written() -> None:
    (recovered,) = recover(report(0, log(-1, 0), known=(5, 9)), report(1, log(-1, 0))).recovered
    assert (recovered.state.leader, recovered.losses) == (seat(0, 3), ())


def test_should_let_it_begin_empty_when_nobody_holds_a_log() -> None:
    (recovered,) = recover(report(0, known=(5, 9))).recovered
    assert (recovered.state.leader, recovered.state.isr) == (None, (seat(0),))
    assert (recovered.state.leader_epoch, recovered.state.partition_epoch) == (6, 10)
    assert recovered.losses == ("no broker that has reported holds a log of it: it begins empty",)


def test_should_wait_for_a_replica_that_has_not_reported() -> None:
    plan = recover(report(1, log(5, 100)), silent={BrokerId(0): "its Lease has run out"})
    (stuck,) = plan.stuck
    assert plan.writes == ()
    assert stuck.place == "default/flights/0"
    assert stuck.reason == (
        "broker 0, which is to hold it, has not reported (its Lease has run out): start that broker first"
    )
    (unknown,) = recover(report(1)).stuck
    assert "(it has no Lease)" in unknown.reason


def test_should_say_that_a_broker_elsewhere_has_not_reported() -> None:
    (recovered,) = recover(report(0, log(5, 100)), silent={BrokerId(1): "its Lease has run out"}).recovered
    assert recovered.losses == ("broker 1 has not reported (its Lease has run out) and may hold later records",)


def test_should_not_decide_while_a_log_cannot_be_opened() -> None:
    (stuck,) = recover(report(0, log(5, 100, trouble="its disk failed")), report(1, log(5, 90))).stuck
    assert stuck.reason == "broker 0 holds it and cannot open it (its disk failed): its log file says why"


def test_should_say_to_look_again_when_a_broker_is_about_to_lead() -> None:
    for state in (partition_state(leader=seat(0)), partition_state(leader=None)):
        (stuck,) = recover(report(0, log(1, 100)), sets=(partition_set(state),)).stuck
        assert "look again" in stuck.reason


def test_should_not_take_for_lost_what_never_stood_on_a_broker() -> None:
    plan = recover(report(0, log(1, 1, leads=True)), topics=(topic(partitions=3),))
    (new,) = plan.never_placed
    assert (new.topic.name, new.count, new.reason) == ("flights", 2, "the operator has not looked at the topic since")
    assert (plan.online, plan.offline) == (1, ())


def test_should_give_the_reason_of_the_topic_itself() -> None:
    paused = {"type": "Paused", "status": "False", "reason": "NotPaused"}
    for ready, reason in (
        ({"status": "True", "reason": "AllPartitionsOnline"}, "the operator has not looked at the topic since"),
        ({"status": "False", "reason": "NoBrokers"}, "the topic is not Ready: NoBrokers"),
        (
            {"status": "False", "reason": "NoBrokers", "message": "3, not 2"},
            "the topic is not Ready: NoBrokers (3, not 2)",
        ),
    ):
        of_status = replace(topic(), status={"conditions": [paused, {"type": "Ready", **ready}]})
        (new,) = recover(sets=(), topics=(of_status,)).never_placed
        assert new.reason == reason


def test_should_name_partitions_that_a_broker_knows_and_nothing_places() -> None:
    for held in (report(0), report(0, log(1, 100))):
        plan = recover(held, sets=(), topics=(topic(partitions=2),))
        (stuck,) = plan.stuck
        assert stuck.partition == 0
        assert stuck.reason.startswith("no PartitionSet places it; the operator has not looked at the topic")
        assert [new.count for new in plan.never_placed] == [1]


def test_should_take_nothing_for_new_while_a_broker_has_not_reported() -> None:
    plan = recover(sets=(), silent={BrokerId(2): "its Lease has run out"})
    (stuck,) = plan.stuck
    assert "broker 2 has not reported (its Lease has run out)" in stuck.reason
    assert plan.never_placed == ()


def test_should_not_look_at_topics_that_are_going_or_not_asked_for() -> None:
    going = topic(deletionTimestamp="2026-11-21T09:00:00Z")
    for topics in ((), (going,)):
        plan = recover(report(0, log(5, 100)), topics=topics)
        assert (plan.recovered, plan.stuck, plan.online) == ((), (), 0)


def test_should_have_nothing_left_to_do_once_the_brokers_have_followed() -> None:
    before = recover(report(0, log(5, 100), known=(5, 9)))
    (state,) = (recovered.state for recovered in before.recovered)
    after = recover(report(0, log(5, 100, leads=True), known=(state.leader_epoch, state.partition_epoch)),
                    sets=before.writes)  # fmt: skip
    assert (after.recovered, after.stuck, after.online) == ((), (), 1)


def test_should_not_call_online_what_is_led_in_an_epoch_that_is_over_though_the_broker_has_heard_so() -> None:
    led = partition_set(
        partition_state(leader=seat(0, 3), leader_epoch=LeaderEpoch(6), partition_epoch=PartitionEpoch(9))
    )
    late = log(5, 100, leads=True, applied_epoch=LeaderEpoch(5))
    (stuck,) = recover(report(0, late, known=(6, 9)), sets=(led,)).stuck
    assert "look again" in stuck.reason
    assert recover(report(0, replace(late, applied_epoch=LeaderEpoch(6)), known=(6, 9)), sets=(led,)).online == 1


def replicated(leader_epoch: int = 1, partition_epoch: int = 1) -> PartitionSet:
    return partition_set(
        partition_state(
            leader=seat(0),
            replicas=tuple(map(BrokerId, range(3))),
            isr=tuple(map(seat, range(3))),
            leader_epoch=LeaderEpoch(leader_epoch),
            partition_epoch=PartitionEpoch(partition_epoch),
        )
    )


def test_should_keep_the_leader_that_goes_on_whatever_others_hold_a_moment_later() -> None:
    leading = report(1, log(4, 100, leads=True), known=(5, 9))
    ahead, behind = report(0, log(4, 105), known=(5, 9)), report(2, log(4, 90), known=(5, 9))
    (recovered,) = recover(leading, ahead, behind, sets=(replicated(),)).recovered
    assert (recovered.state.leader, recovered.state.isr) == (seat(1, 3), (seat(1, 3),))
    assert recovered.state.replicas == (0, 1, 2)
    assert (recovered.state.leader_epoch, recovered.state.partition_epoch) == (6, 10)


def test_should_not_keep_a_leader_whose_epoch_is_over() -> None:
    stale = report(1, log(4, 200, leads=True), known=(4, 8))
    others = report(0, log(5, 105), known=(5, 9)), report(2, log(5, 90), known=(5, 9))
    (recovered,) = recover(stale, *others, sets=(replicated(),)).recovered
    assert recovered.state.leader == seat(0, 3)


def test_should_keep_a_leader_that_has_not_heard_of_the_end_of_its_epoch_where_nobody_has_more() -> None:
    late = report(1, log(4, 200, leads=True), known=(4, 8))
    others = (report(0, log(4, 200), known=(5, 9)), report(2, log(4, 150), known=(5, 9)))
    (recovered,) = recover(*others, late, sets=(replicated(),)).recovered
    assert recovered.state.leader == seat(1, 3)


def test_should_go_above_what_a_broker_has_promised_though_its_log_is_empty() -> None:
    promised = report(2, log(-1, 0, seen_epoch=LeaderEpoch(8)))
    (recovered,) = recover(report(0, log(5, 10)), report(1, log(5, 10)), promised, sets=(replicated(),)).recovered
    assert recovered.state.leader_epoch == 9
    assert recovered.state.leader == seat(0, 3)


def test_should_end_a_dispute_about_one_epoch_in_favour_of_the_leader_that_goes_on() -> None:
    leading = report(1, log(1, 100, leads=True, regressed=True))
    others = report(0, log(1, 100)), report(2, log(1, 90))
    (recovered,) = recover(leading, *others, sets=(replicated(),)).recovered
    assert recovered.reason == "broker 1 knew another state of it under the same epochs"
    assert (recovered.state.leader, recovered.state.partition_epoch) == (seat(1, 3), 2)
