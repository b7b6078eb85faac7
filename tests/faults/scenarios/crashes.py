"""S1, S2, S12, S24: processes that die, all at once or one after the other, and nothing at all."""

from tests.faults.fleet import broker_name
from tests.faults.play import Play
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
        for broker in play.brokers:
            play.fleet.kill(broker_name(broker))
        for broker in play.brokers:
            play.fleet.start_broker(broker, wait=False)
        play.wait_progress()


SCENARIOS = (
    Scenario("S1", "the leader is killed again and again", kill_leaders, short=5, long=20),
    Scenario("S2", "all brokers are killed at once", kill_all_brokers, short=3, long=12),
)
