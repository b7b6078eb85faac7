"""S3 to S7: leaders that are stopped, and brokers that others cannot reach, in all combinations."""

from functools import partial
from typing import Final

from headrace.core.limits import LEASE_DURATION_MS
from headrace.core.replication.isr import REPLICA_LAG_MS_MAX
from tests.faults.clients import RawWriter
from tests.faults.fleet import API, broker_name
from tests.faults.history import Outcome
from tests.faults.journal import now_s
from tests.faults.play import TOPIC, Play, Setting
from tests.faults.scenarios.scenario import Scenario
from tests.support.waiting import wait_for

LEASE_S: Final = LEASE_DURATION_MS / 1000
_LAG_S: Final = REPLICA_LAG_MS_MAX / 1000
_SLACK_S: Final = 40


def stop_leaders(play: Play) -> None:
    """SIGSTOP until another leads, then SIGCONT: what it wakes up with, requests included, must do no harm."""
    for number in range(play.rounds):
        leader = play.leader()
        with play.journal.fault(f"broker {leader} stopped"):
            play.fleet.pause(broker_name(leader))
            stopped_s = now_s()
            # They wait in its sockets until it goes on, and are the first that it sees then.
            zombies = [StubbornWriter(f"zombie-{number}-{acks}", play, leader, acks) for acks in ("1", "all")]
            for zombie in zombies:
                zombie.start()
            play.wait_other_leader(leader, LEASE_S + _SLACK_S)
            play.wait_progress()
            # Until then it may think that it leads, and acknowledge acks=1: others have heard it within the lease.
            play.hold(max(0.0, stopped_s + LEASE_S + 0.5 - now_s()))
        play.fleet.resume(broker_name(leader))
        play.wait_progress()
        for zombie in zombies:
            zombie.stop()
            zombie.join(20)
        play.wait_in_sync()


class StubbornWriter(RawWriter):
    """Asks one broker only, whoever leads."""

    def __init__(self, name: str, play: Play, broker: int, acks: str) -> None:
        super().__init__(name, play.journal, play.fleet.url(broker), 0, acks)
        self._only = play.fleet.url(broker)

    def _find(self, transport: object) -> str:
        return self._only


def cut_leader_off(play: Play) -> None:
    """From its followers but not from the API server, and the reverse."""
    for _ in range(play.rounds):
        leader = play.leader()
        others = [broker_name(broker) for broker in play.brokers if broker != leader]
        with play.journal.fault(f"broker {leader} without followers"), play.cut_off(broker_name(leader), others):
            play.hold(_LAG_S + 3)
        play.wait_progress()
        play.wait_in_sync()
        leader = play.leader()
        with play.journal.fault(f"broker {leader} without API"), play.cut_off(broker_name(leader), [API]):
            play.wait_other_leader(leader, LEASE_S + _SLACK_S)
            play.wait_progress()
        play.wait_progress()
        play.wait_in_sync()


def cut_follower_off(play: Play) -> None:
    """The ISR shrinks, acks=all goes on, the ISR grows again; in one direction at a time too."""
    for number in range(play.rounds):
        leader = play.leader()
        follower = next(broker for broker in play.brokers if broker != leader)
        near, far = broker_name(follower), [broker_name(b) for b in play.brokers if b != follower]
        with play.journal.fault(f"broker {follower} cut off"):
            for other in far:
                if number % 3 != 1:
                    play.fleet.network.cut(near, other)
                if number % 3 != 2:
                    play.fleet.network.cut(other, near)
            play.wait_out_of_sync(follower, _LAG_S + _SLACK_S)
            play.wait_progress()
            play.fleet.network.heal_all()
        play.wait_in_sync()


def starve(play: Play) -> None:
    """Below minInsyncReplicas: refused, no advance, no dirty read."""
    for _ in range(play.rounds):
        leader = play.leader()
        followers = [broker for broker in play.brokers if broker != leader]
        for follower in followers:
            play.fleet.kill(broker_name(follower))
        alone_s = now_s()
        with play.journal.fault("one of three alive"):
            refusals = play.journal.failures["NotEnoughReplicas"]
            wait_for(partial(_has_refused, play, refusals + 1), "acks=all is refused")
            play.hold(2)
        no_more_s = now_s()
        broken = [
            write
            for write in tuple(play.journal.writes)
            if alone_s < write.began_s and write.ended_s < no_more_s and write.outcome is Outcome.ACKNOWLEDGED
        ]
        play.expect(not broken, f"acknowledged with one of three replicas: {broken[:3]}")
        for follower in followers:
            play.fleet.start_broker(follower, wait=False)
        play.wait_progress()
        play.wait_in_sync()


def _has_refused(play: Play, times: int) -> bool:
    return play.journal.failures["NotEnoughReplicas"] >= times


def stand_last(play: Play) -> None:
    """r0 is cut off, then r1, r2 loses its power; r0 and r1 come back without it, and have all that it promised."""
    for _ in range(play.rounds):
        last = play.steady_leader()
        first, second = (broker_name(broker) for broker in play.brokers if broker != last)
        everybody = [*map(broker_name, play.brokers), API]
        with play.journal.fault("one after the other cut off"):
            play.fleet.network.cut_both(first, [name for name in everybody if name != first])
            wait_for(lambda: len(play.fleet.isr(TOPIC)) == 2, "the ISR shrinks", _LAG_S + _SLACK_S)
            play.wait_progress()
            play.fleet.network.cut_both(second, [name for name in everybody if name not in (first, second)])
            play.hold(_LAG_S + 2)
            play.fleet.power_fail(last)
            play.fleet.network.heal_all()
            play.wait_other_leader(last, LEASE_S + _SLACK_S)
            play.wait_progress()
        play.fleet.start_broker(last)
        play.wait_progress()
        play.wait_in_sync()


_ONE = Setting(partitions=1)
SCENARIOS = (
    Scenario(
        "S3", "the leader stops beyond its lease, then goes on", stop_leaders, Setting(async_clients=True), long=6
    ),
    Scenario("S4", "the leader cut off from followers, from the API", cut_leader_off, short=1, long=4),
    Scenario("S5", "a follower cut off", cut_follower_off, _ONE, short=1, long=6),
    Scenario("S6", "fewer than minInsyncReplicas", starve, _ONE, short=1, long=6),
    Scenario("S7", "the last replica standing", stand_last, Setting(partitions=1, faulty_disks=True), short=1, long=4),
)
