"""Pods tell of a broker's death before its Lease does."""

from headrace.core.control.liveness import PodDeaths
from headrace.core.resources.kubernetes_objects import BrokerPod
from headrace.core.types import BrokerId


def pod(broker: int = 0, *, uid: str = "a", restarts: int = 0, running: bool = True) -> BrokerPod:
    return BrokerPod("headrace", BrokerId(broker), uid, restarts, running)


def deaths_at(*looks: tuple[BrokerPod, ...]) -> list[dict[int, int]]:
    """What each look finds; looks are at 10, 20 and so on."""
    deaths = PodDeaths()
    found = [deaths.observe(look, 10 * number) for number, look in enumerate(looks, start=1)]
    return [{int(broker): since_ms for broker, since_ms in each.items()} for each in found]


def test_should_say_nothing_while_the_same_pods_run() -> None:
    assert deaths_at((), (pod(0), pod(1)), (pod(0), pod(1))) == [{}, {}, {}]


def test_should_call_who_ran_at_the_last_look_dead() -> None:
    before = (pod(),)
    for after in [(), (pod(uid="b"),), (pod(restarts=1),), (pod(running=False),)]:
        assert deaths_at(before, before, after) == [{}, {}, {0: 20}]


def test_should_say_it_once() -> None:
    assert deaths_at((pod(),), (), ()) == [{}, {0: 10}, {}]
    dead = (pod(running=False),)
    assert deaths_at((pod(),), dead, dead) == [{}, {0: 10}, {}]


def test_should_take_who_does_not_run_at_the_first_look_for_dead_as_of_now() -> None:
    assert deaths_at((pod(running=False), pod(1))) == [{0: 10}]


def test_should_leave_it_to_the_lease_when_a_container_runs_again() -> None:
    assert deaths_at((pod(),), (pod(running=False),), (pod(restarts=1),)) == [{}, {0: 10}, {}]
    assert deaths_at((pod(),), (), (pod(uid="b"),)) == [{}, {0: 10}, {}]


def test_should_notice_each_death_of_a_container_that_crashes_again_and_again() -> None:
    crashes = ((pod(),), (pod(running=False),), (pod(restarts=1, running=False),))
    assert deaths_at(*crashes) == [{}, {0: 10}, {0: 20}]
