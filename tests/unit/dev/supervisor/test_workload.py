"""The plan that keeps Pods, StatefulSet and broker processes in step."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import DEV_BROKERS_MAX
from headrace.dev.supervisor.workload import (
    AddBroker,
    AdoptPod,
    BrokerView,
    CreatePod,
    CreateService,
    CreateStatefulSet,
    DeletePod,
    KillBroker,
    PodStatus,
    PodView,
    RemoveBroker,
    SetStatus,
    StatefulSetView,
    Step,
    WritePodStatus,
    WriteSetStatus,
    parse_pod,
    parse_stateful_set,
    plan,
    pod_name,
)
from headrace.dev.supervisor.workload_objects import pod_object, pod_status, stateful_set_object, stateful_set_status

STARTED = "2026-11-21T09:00:00Z"
PORT = 9701


def broker(number: int, *, pod_uid: str | None = "", ready: bool = True) -> BrokerView:
    return BrokerView(number, ready, 0, STARTED, PORT + number, f"uid-{number}" if pod_uid == "" else pod_uid)


def status(*, ready: bool = True, restarts: int = 0) -> PodStatus:
    return PodStatus(ready, restarts, STARTED)


def pod(number: int, *, uid: str = "", port: int | None = None, deleting: bool = False) -> PodView:
    return PodView(pod_name(number), uid or f"uid-{number}", number, port or PORT + number, deleting, status())


def stateful_set(replicas: int) -> StatefulSetView:
    return StatefulSetView("set-uid", replicas, 1, SetStatus(replicas, replicas, 1))


def kinds(steps: list[Step]) -> list[type[Step]]:
    return [type(step) for step in steps]


def test_should_do_nothing_when_everything_is_in_step() -> None:
    assert plan(stateful_set(2), (pod(0), pod(1)), (broker(0), broker(1))) == []


def test_should_create_the_stateful_set_first_when_it_is_missing() -> None:
    assert plan(None, (), (broker(0), broker(1))) == [CreateStatefulSet(2, "there is no StatefulSet")]


def test_should_kill_the_broker_and_make_another_pod_when_its_pod_was_deleted() -> None:
    kill, create = plan(stateful_set(1), (), (broker(0),))
    assert kill == KillBroker(0, "Pod headrace-0 was deleted")
    assert create == CreatePod(0, PORT, "set-uid", "the broker has no Pod")


def test_should_kill_the_broker_when_its_pod_was_deleted_and_another_took_its_name() -> None:
    steps = plan(stateful_set(1), (pod(0, uid="other"),), (broker(0),))
    assert kinds(steps) == [KillBroker, AdoptPod]


def test_should_kill_the_broker_and_let_the_pod_go_when_it_is_being_deleted() -> None:
    assert plan(stateful_set(1), (pod(0, deleting=True),), (broker(0),)) == [
        KillBroker(0, "Pod headrace-0 was deleted"),
        DeletePod("headrace-0", "uid-0", "its process is gone"),
    ]


def test_should_not_kill_again_when_the_pod_that_is_being_deleted_has_no_process_any_more() -> None:
    assert kinds(plan(stateful_set(1), (pod(0, deleting=True),), (broker(0, pod_uid=None),))) == [DeletePod]


def test_should_adopt_a_pod_of_an_earlier_run_without_a_kill() -> None:
    assert kinds(plan(stateful_set(1), (pod(0),), (broker(0, pod_uid=None),))) == [AdoptPod]


def test_should_make_a_new_pod_where_one_of_an_earlier_run_names_another_port() -> None:
    steps = plan(stateful_set(1), (pod(0, port=9801),), (broker(0, pod_uid=None),))
    assert steps == [DeletePod("headrace-0", "uid-0", "its broker listens on port 9701 now")]


def test_should_make_the_bootstrap_service_whenever_it_is_missing() -> None:
    steps = plan(stateful_set(1), (pod(0),), (broker(0),), has_service=False)
    assert steps == [CreateService("there is no bootstrap Service")]


def test_should_add_brokers_when_scaled_up() -> None:
    steps = plan(stateful_set(3), (pod(0),), (broker(0),))
    assert [step.broker for step in steps if isinstance(step, AddBroker)] == [1, 2]


def test_should_remove_the_highest_ordinals_and_their_pods_when_scaled_down() -> None:
    steps = plan(stateful_set(1), (pod(0), pod(1), pod(2)), (broker(0), broker(1), broker(2)))
    assert [step.broker for step in steps if isinstance(step, RemoveBroker)] == [2, 1]
    assert [step.name for step in steps if isinstance(step, DeletePod)] == ["headrace-1", "headrace-2"]
    assert not [step for step in steps if isinstance(step, KillBroker)]


def test_should_run_no_more_brokers_than_the_bound_and_say_so_when_asked_for_more() -> None:
    added = [step for step in plan(stateful_set(1000), (), ()) if isinstance(step, AddBroker)]
    assert len(added) == DEV_BROKERS_MAX
    assert "16 at most" in added[0].reason


def test_should_write_statuses_when_a_broker_is_not_ready() -> None:
    steps = plan(stateful_set(1), (pod(0),), (broker(0, ready=False),))
    assert steps == [
        WritePodStatus("headrace-0", status(ready=False), "the process changed"),
        WriteSetStatus(SetStatus(1, 0, 1), "its numbers changed"),
    ]


def test_should_read_back_the_pod_that_it_writes() -> None:
    obj = {**pod_object(1, 9702, "set-uid", "host"), "status": pod_status(status(restarts=2))}
    obj["metadata"]["uid"] = "u"
    assert parse_pod(obj) == PodView("headrace-1", "u", 1, 9702, deleting=False, status=status(restarts=2))


def test_should_read_back_the_stateful_set_that_it_writes() -> None:
    obj = {**stateful_set_object(3), "status": stateful_set_status(SetStatus(3, 2, 4))}
    obj["metadata"] = {**obj["metadata"], "uid": "u", "generation": 4}
    assert parse_stateful_set(obj) == StatefulSetView("u", 3, 4, SetStatus(3, 2, 4))


@given(
    replicas=st.integers(0, 5),
    brokers=st.dictionaries(st.integers(0, 6), st.sampled_from([None, "uid", "other"]), max_size=5),
    pods=st.dictionaries(st.integers(0, 6), st.tuples(st.sampled_from(["uid", "other"]), st.booleans()), max_size=5),
    cut=st.integers(0, 20),
)
def test_should_reach_what_is_asked_for_after_an_interruption_anywhere(
    replicas: int, brokers: dict[int, str | None], pods: dict[int, tuple[str, bool]], cut: int
) -> None:
    world = _World(replicas, brokers, pods)
    world.carry_out(world.plan()[:cut])
    for _ in range(3):
        world.carry_out(world.plan())
    assert world.plan() == []
    assert set(world.brokers) == set(range(replicas))
    assert {pod_name(number): b.pod_uid for number, b in world.brokers.items()} == {
        name: p.uid for name, p in world.pods.items()
    }


class _World:
    """What the controller's steps do to the API and to the processes."""

    def __init__(self, replicas: int, brokers: dict[int, str | None], pods: dict[int, tuple[str, bool]]) -> None:
        self.stateful_set = StatefulSetView("set-uid", replicas, 1, None)
        self.brokers = {n: broker(n, pod_uid=uid and f"{uid}-{n}") for n, uid in brokers.items()}
        self.pods = {pod_name(n): pod(n, uid=f"{uid}-{n}", deleting=d) for n, (uid, d) in pods.items()}
        self.created = 0

    def plan(self) -> list[Step]:
        return plan(self.stateful_set, tuple(self.pods.values()), tuple(self.brokers.values()))

    def carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case AddBroker(number):
                    self.brokers[number] = broker(number, pod_uid=None)
                case RemoveBroker(number):
                    del self.brokers[number]
                case KillBroker(number):
                    self._set_pod(number, None)
                case AdoptPod(number, uid):
                    self._set_pod(number, uid)
                case _:
                    self._write(step)

    def _write(self, step: Step) -> None:
        match step:
            case CreatePod(number, port):
                self.created += 1
                uid = f"new-{self.created}"
                self.pods[pod_name(number)] = PodView(pod_name(number), uid, number, port, deleting=False, status=None)
                self._set_pod(number, uid)
            case DeletePod(name):
                del self.pods[name]
            case WritePodStatus(name, written):
                self.pods[name] = replace(self.pods[name], status=written)
            case WriteSetStatus(written_of_set):
                self.stateful_set = replace(self.stateful_set, status=written_of_set)
            case _:
                raise AssertionError(f"{step} is not for a world that has a StatefulSet")

    def _set_pod(self, number: int, uid: str | None) -> None:
        self.brokers[number] = replace(self.brokers[number], pod_uid=uid)
