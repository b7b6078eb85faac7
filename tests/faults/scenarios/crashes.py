"""S1, S2, S12, S24: processes that die, one by one or all at once, and a long time in which nothing happens."""

from tests.faults.fleet import broker_name
from tests.faults.play import Play, Setting
from tests.faults.scenarios.scenario import Scenario


def kill_leaders(play: Play) -> None:
    """Whoever leads the first partition dies, and comes back only when the others have gone on."""
    for _ in range(play.rounds):
        leader = play.leader()
        with play.journal.fault(f"broker {leader} killed"):
            play.fleet.kill(broker_name(leader))
            if play.setting.replicas > 1:
                play.wait_progress()
        play.fleet.start_broker(leader)
        play.wait_progress()
        play.wait_in_sync()


def kill_all_brokers(play: Play) -> None:
    for _ in range(play.rounds):
        with play.journal.fault("all brokers killed"):
            for broker in play.brokers:
                play.fleet.kill(broker_name(broker))
            for broker in play.brokers:
                play.fleet.start_broker(broker, wait=False)
            play.wait_progress()


def retry_through_leader_changes(play: Play) -> None:
    """Producers give requests up early and try again, while leaders die, or are only slow."""
    for number in range(play.rounds):
        leader = play.leader()
        name = broker_name(leader)
        if number % 2:
            with play.journal.fault(f"broker {leader} stopped for a moment"):
                play.fleet.pause(name)
                play.hold(2)
                play.fleet.resume(name)
        else:
            with play.journal.fault(f"broker {leader} killed"):
                play.fleet.kill(name)
                play.wait_progress()
            play.fleet.start_broker(leader)
        play.wait_progress()
        play.wait_in_sync()


def work_in_peace(play: Play) -> None:
    for _ in range(play.rounds):
        with play.journal.fault("nothing"):
            play.hold(15)
    if play.journal.failures:
        play.notes.append(f"requests failed in peace: {dict(play.journal.failures)}")


SCENARIOS = (
    Scenario("S1", "the leader is killed again and again", kill_leaders, short=5, long=20),
    Scenario("S2", "all brokers are killed at once", kill_all_brokers, Setting(async_clients=True), short=2, long=12),
    Scenario(
        "S12",
        "producers retry through leader changes",
        retry_through_leader_changes,
        Setting(writer_options={"request_timeout_ms": 1_000}),
        short=2,
        long=12,
    ),
    Scenario("S24", "a healthy cluster, for a long time", work_in_peace, short=1, long=40),
)
