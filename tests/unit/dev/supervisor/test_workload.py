"""The plan that keeps Pods, StatefulSet and broker processes in step."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import DEV_BROKERS_MAX
from headrace.dev.supervisor.pod_status import PodStatus
from headrace.dev.supervisor.workload import (
    DEV_POD_GRACE_MS,
    AddBroker,
    AdoptPod,
    BrokerView,
    CreatePod,
    CreateService,
    CreateStatefulSet,
    DeletePod,
    EndPod,
    KillBroker,
    Pause,
    PodView,
    RemoveBroker,
    RestartBroker,
    SetStatus,
    StatefulSetView,
    Step,
    WarnOfSet,
    WritePodStatus,
    WriteSetStatus,
    parse_pod,
    parse_stateful_set,
    plan,
    pod_name,
    pod_object,
    revision_of,
    stateful_set_object,
    stateful_set_status,
)

STARTED = "2026-11-21T09:00:00Z"
PORT = 9701
NOW, BEFORE = "headrace-now", "headrace-before"
"""Revisions of the template."""


def broker(number: int, *, pod_uid: str | None = "", ready: bool = True, stopping: bool = False) -> BrokerView:
    uid = f"uid-{number}" if pod_uid == "" else pod_uid
    return BrokerView(number, status(ready=ready), PORT + number, uid, stopping)


def status(*, ready: bool = True, restarts: int = 0) -> PodStatus:
    return PodStatus(ready, restarts, STARTED)


def pod(number: int, *, uid: str = "", port: int | None = None, deleting: bool = False, revision: str = NOW) -> PodView:
    return PodView(
        pod_name(number), uid or f"uid-{number}", number, port or PORT + number, deleting, revision, status()
    )


def set_status(replicas: int, *, ready: int | None = None, updated: int | None = None) -> SetStatus:
    """`updated` is given while a rolling restart is under way."""
    if updated is None:
        return SetStatus(replicas, replicas if ready is None else ready, 1, replicas, replicas, NOW, NOW)
    return SetStatus(replicas, replicas if ready is None else ready, 1, replicas - updated, updated, BEFORE, NOW)


def stateful_set(replicas: int, *, status: SetStatus | None = None) -> StatefulSetView:
    return StatefulSetView("set-uid", replicas, 1, NOW, status or set_status(replicas))


def kinds(steps: list[Step]) -> list[type[Step]]:
    return [type(step) for step in steps]


def acts(*views: Any, has_service: bool = True) -> list[Step]:
    """The plan without the StatefulSet's own numbers."""
    return [step for step in plan(*views, has_service=has_service) if not isinstance(step, WriteSetStatus)]


def test_should_do_nothing_when_everything_is_in_step() -> None:
    assert plan(stateful_set(2), (pod(0), pod(1)), (broker(0), broker(1))) == []


def test_should_create_the_stateful_set_first_when_it_is_missing() -> None:
    assert acts(None, (), (broker(0), broker(1))) == [CreateStatefulSet(2, "there is no StatefulSet")]


def test_should_kill_the_broker_and_make_another_pod_when_its_pod_was_deleted() -> None:
    kill, create = acts(stateful_set(1), (), (broker(0),))
    assert kill == KillBroker(0, "Pod headrace-0 was deleted")
    assert create == CreatePod(0, PORT, "set-uid", NOW, "the broker has no Pod")


def test_should_kill_the_broker_when_its_pod_was_deleted_and_another_took_its_name() -> None:
    steps = acts(stateful_set(1), (pod(0, uid="other"),), (broker(0),))
    assert kinds(steps) == [KillBroker, AdoptPod]


def test_should_kill_the_broker_and_let_the_pod_go_when_it_is_being_deleted() -> None:
    """Not at once: kubectl would take the next Pod for this one."""
    assert acts(stateful_set(1), (pod(0, deleting=True),), (broker(0),)) == [
        KillBroker(0, "Pod headrace-0 was deleted"),
        Pause(DEV_POD_GRACE_MS, "whoever deleted headrace-0 is about to wait for its end"),
        DeletePod("headrace-0", "uid-0", "its process is gone"),
    ]


def test_should_not_kill_again_when_the_pod_that_is_being_deleted_has_no_process_any_more() -> None:
    assert kinds(acts(stateful_set(1), (pod(0, deleting=True),), (broker(0, pod_uid=None),))) == [
        Pause,
        DeletePod,
    ]


def test_should_adopt_a_pod_of_an_earlier_run_without_a_kill() -> None:
    assert kinds(acts(stateful_set(1), (pod(0),), (broker(0, pod_uid=None),))) == [AdoptPod]


def test_should_make_a_new_pod_where_one_of_an_earlier_run_names_another_port() -> None:
    steps = acts(stateful_set(1), (pod(0, port=9801),), (broker(0, pod_uid=None),))
    assert steps == [DeletePod("headrace-0", "uid-0", "its broker listens on port 9701 now")]


def test_should_make_the_bootstrap_service_whenever_it_is_missing() -> None:
    steps = acts(stateful_set(1), (pod(0),), (broker(0),), has_service=False)
    assert steps == [CreateService("there is no bootstrap Service")]


def test_should_add_brokers_when_scaled_up() -> None:
    steps = acts(stateful_set(3), (pod(0),), (broker(0),))
    assert [step.broker for step in steps if isinstance(step, AddBroker)] == [1, 2]


def test_should_end_the_highest_ordinals_when_scaled_down() -> None:
    steps = acts(stateful_set(1), (pod(0), pod(1), pod(2)), (broker(0), broker(1), broker(2)))
    assert kinds(steps) == [EndPod, EndPod, RemoveBroker, RemoveBroker]
    assert [step.broker for step in steps if isinstance(step, RemoveBroker)] == [2, 1]
    assert [step.name for step in steps if isinstance(step, EndPod)] == ["headrace-1", "headrace-2"]


def test_should_leave_a_broker_that_hands_over_alone_and_its_pod_until_it_is_gone() -> None:
    leaving = broker(1, stopping=True)
    assert acts(stateful_set(1), (pod(0), pod(1, deleting=True)), (broker(0), leaving)) == []
    assert acts(stateful_set(2), (pod(0), pod(1, deleting=True)), (broker(0), leaving)) == []
    assert acts(stateful_set(1), (pod(0), pod(1, deleting=True)), (broker(0),)) == [
        DeletePod("headrace-1", "uid-1", "it has no broker")
    ]


def test_should_wait_no_longer_for_a_broker_whose_pod_was_taken_away() -> None:
    steps = acts(stateful_set(1), (pod(0),), (broker(0), broker(1, stopping=True)))
    assert steps == [KillBroker(1, "Pod headrace-1 was deleted")]
    assert acts(stateful_set(1), (pod(0),), (broker(0), broker(1, pod_uid=None, stopping=True))) == []


def test_should_run_no_more_brokers_than_the_bound_and_say_so_when_asked_for_more() -> None:
    added = [step for step in acts(stateful_set(1000), (), ()) if isinstance(step, AddBroker)]
    assert len(added) == DEV_BROKERS_MAX
    assert "16 at most" in added[0].reason


def test_should_write_statuses_when_a_broker_is_not_ready() -> None:
    steps = plan(stateful_set(1), (pod(0),), (broker(0, ready=False),))
    assert steps == [
        WritePodStatus("headrace-0", status(ready=False), "the process changed"),
        WriteSetStatus(set_status(1, ready=0), "its numbers changed"),
    ]


def test_should_read_back_the_pod_that_it_writes() -> None:
    obj = {**pod_object(CreatePod(1, 9702, "set-uid", NOW, ""), "host"), "status": status(restarts=2).to_object()}
    obj["metadata"]["uid"] = "u"
    assert parse_pod(obj) == PodView(
        "headrace-1", "u", 1, 9702, deleting=False, revision=NOW, status=status(restarts=2)
    )


def test_should_read_back_the_stateful_set_that_it_writes() -> None:
    known = SetStatus(3, 2, 4, 2, 1, BEFORE, NOW)
    obj = {**stateful_set_object(3), "status": stateful_set_status(known)}
    obj["metadata"] = {**obj["metadata"], "uid": "u", "generation": 4}
    assert parse_stateful_set(obj) == StatefulSetView("u", 3, 4, revision_of(obj["spec"]["template"]), known)


def test_should_know_a_template_by_its_content() -> None:
    assert revision_of({"a": 1, "b": {"c": 2}}) == revision_of({"b": {"c": 2}, "a": 1})
    assert revision_of({"a": 1}) != revision_of({"a": 2})


def test_should_restart_the_highest_broker_first_when_the_template_changed() -> None:
    status_before = set_status(2, updated=0)
    pods = (pod(0, revision=BEFORE), pod(1, revision=BEFORE))
    restart = RestartBroker(1, "the template of StatefulSet headrace has changed")
    assert plan(stateful_set(2, status=status_before), pods, (broker(0), broker(1))) == [restart]
    stopping = broker(1, pod_uid=None, stopping=True)
    assert acts(stateful_set(2, status=status_before), pods, (broker(0), stopping)) == []


def test_should_wait_with_the_next_until_the_one_above_is_ready_again() -> None:
    pods = (pod(0, revision=BEFORE), replace(pod(1), status=status(ready=False)))
    waiting = stateful_set(2, status=set_status(2, ready=1, updated=1))
    assert plan(waiting, pods, (broker(0), broker(1, ready=False))) == []
    pods = (pod(0, revision=BEFORE), pod(1))
    steps = plan(stateful_set(2, status=set_status(2, updated=1)), pods, (broker(0), broker(1)))
    assert kinds(steps) == [RestartBroker]


def test_should_make_a_new_pod_once_the_process_of_the_old_one_is_gone() -> None:
    pods, brokers = (pod(0, revision=BEFORE),), (broker(0, pod_uid=None),)
    assert acts(stateful_set(1, status=set_status(1, updated=0)), pods, brokers) == [
        DeletePod("headrace-0", "uid-0", "its broker runs by a newer template")
    ]


def test_should_say_that_it_is_done_only_once_all_are_of_the_new_template_and_ready() -> None:
    rolling = stateful_set(1, status=set_status(1, ready=0, updated=1))
    written = plan(rolling, (pod(0),), (broker(0),))
    assert written == [WriteSetStatus(set_status(1), "its numbers changed")]


def test_should_warn_once_for_each_spec_that_asks_for_more_than_there_can_be() -> None:
    brokers = tuple(broker(number) for number in range(DEV_BROKERS_MAX))
    pods = tuple(pod(number) for number in range(DEV_BROKERS_MAX))
    new = replace(stateful_set(99, status=set_status(DEV_BROKERS_MAX)), generation=2)
    warning, write = plan(new, pods, brokers)
    assert isinstance(warning, WarnOfSet)
    assert warning.message.startswith("spec.replicas is 99, and headrace dev runs 16 brokers at most")
    assert isinstance(write, WriteSetStatus)
    assert plan(replace(new, status=write.status), pods, brokers) == []


@given(
    replicas=st.integers(0, 5),
    brokers=st.dictionaries(st.integers(0, 6), st.sampled_from([None, "uid", "other"]), max_size=5),
    pods=st.dictionaries(
        st.integers(0, 6),
        st.tuples(st.sampled_from(["uid", "other"]), st.booleans(), st.sampled_from([NOW, BEFORE])),
        max_size=5,
    ),
    cut=st.integers(0, 20),
)
def test_should_reach_what_is_asked_for_after_an_interruption_anywhere(
    replicas: int, brokers: dict[int, str | None], pods: dict[int, tuple[str, bool, str]], cut: int
) -> None:
    world = _World(replicas, brokers, pods)
    world.carry_out(world.plan()[:cut])
    for _ in range(4 + 6 * replicas):
        world.carry_out(world.plan())
        world.let_stop()
    assert world.plan() == []
    assert all(one.revision == NOW for one in world.pods.values())
    assert set(world.brokers) == set(range(replicas))
    assert {pod_name(number): b.pod_uid for number, b in world.brokers.items()} == {
        name: p.uid for name, p in world.pods.items()
    }


class _World:
    """What the controller's steps do to the API and to the processes."""

    def __init__(self, replicas: int, brokers: dict[int, str | None], pods: dict[int, tuple[str, bool, str]]) -> None:
        self.stateful_set = StatefulSetView("set-uid", replicas, 1, NOW, None)
        self.brokers = {n: broker(n, pod_uid=uid and f"{uid}-{n}") for n, uid in brokers.items()}
        self.pods = {pod_name(n): pod(n, uid=f"{uid}-{n}", deleting=d, revision=r) for n, (uid, d, r) in pods.items()}
        self.created = 0

    def plan(self) -> list[Step]:
        return plan(self.stateful_set, tuple(self.pods.values()), tuple(self.brokers.values()))

    def carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case AddBroker(number):
                    self.brokers[number] = broker(number, pod_uid=None)
                case RemoveBroker(number):
                    self.brokers[number] = replace(self.brokers[number], stopping=True)
                case KillBroker(number):
                    self._set_pod(number, None)
                case RestartBroker(number):
                    self.brokers[number] = replace(self.brokers[number], stopping=True, pod_uid=None)
                case AdoptPod(number, uid):
                    self._set_pod(number, uid)
                case _:
                    self._write(step)

    def let_stop(self) -> None:
        """Whoever was asked to has stopped: those that are to run go on as new processes."""
        self.brokers = {
            number: replace(one, stopping=False)
            for number, one in self.brokers.items()
            if not one.stopping or number < self.stateful_set.replicas
        }

    def _write(self, step: Step) -> None:
        match step:
            case CreatePod(number, port, _, revision):
                self.created += 1
                uid = f"new-{self.created}"
                self.pods[pod_name(number)] = PodView(
                    pod_name(number), uid, number, port, deleting=False, revision=revision, status=None
                )
                self._set_pod(number, uid)
            case DeletePod(name):
                del self.pods[name]
            case EndPod(name):
                self.pods[name] = replace(self.pods[name], deleting=True)
            case WritePodStatus(name, written):
                self.pods[name] = replace(self.pods[name], status=written)
            case Pause():
                pass
            case WriteSetStatus(written_of_set):
                self.stateful_set = replace(self.stateful_set, status=written_of_set)
            case _:
                raise AssertionError(f"{step} is not for a world that has a StatefulSet")

    def _set_pod(self, number: int, uid: str | None) -> None:
        self.brokers[number] = replace(self.brokers[number], pod_uid=uid)
