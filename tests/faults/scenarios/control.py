"""S18, S27 to S29: operators that die, and an API server that is away, slow, wrong, or back in the past."""

import random
import subprocess
import sys
import time
from typing import Final

from tests.faults.fleet import API, OPERATOR, broker_name
from tests.faults.play import TOPIC, Play, Setting
from tests.faults.scenarios.scenario import Scenario
from tests.faults.unruly_api import Answer, Behaviour, Cut, Lost, is_watch, let_pass
from tests.support.patience import patient
from tests.support.waiting import wait_for

_SECOND: Final = "operator-2"
_ERRORS: Final = (409, 429, 500, 503)
_AWAY_LONG_S: Final = 300
_AWAY_SHORT_S: Final = 15
_RECOVER_S: Final = 120
_COMMAND_S: Final = 60


def trouble_the_control_plane(play: Play) -> None:
    """Operators die in the middle of a pass, the API server answers with errors, then not at all."""
    for _ in range(play.rounds):
        leader = play.leader()
        with play.journal.fault("operators killed while a leader is replaced"):
            play.fleet.kill(broker_name(leader))
            for operator in (OPERATOR, _SECOND, OPERATOR):
                play.fleet.kill(operator)
                play.hold(play.random.uniform(0.1, 1.0))
                play.fleet.start_operator(operator)
            play.wait_progress()
        play.fleet.start_broker(leader)
        play.wait_in_sync()
        away_s = _AWAY_SHORT_S if play.rounds == 1 else _AWAY_LONG_S
        with play.journal.fault("no API server"):
            play.fleet.pause(API)
            play.wait_progress()
            play.hold(away_s)
            play.wait_progress()
            play.wait_read()
            play.fleet.resume(API)
        play.wait_progress()
        play.wait_in_sync()
    _answer_with_errors(play)


def _answer_with_errors(play: Play) -> None:
    """One in ten requests of everybody, watches included."""
    assert play.api is not None
    chance = random.Random(play.random.random())

    def rule(method: str, path: str, query: str) -> Behaviour:
        if chance.random() >= 0.1:
            return None
        if is_watch(query):
            return chance.choice((Answer(410), Cut()))
        return Answer(chance.choice(_ERRORS) if method in ("PUT", "PATCH") else chance.choice(_ERRORS[1:]))

    play.api.rule = rule
    leader = play.leader()
    with play.journal.fault("an API server full of errors"):
        for operator in (OPERATOR, _SECOND):
            play.fleet.kill(operator)
            play.fleet.start_operator(operator)
        play.fleet.kill(broker_name(leader))
        play.wait_progress()
        play.fleet.keep_starting_broker(leader)
        play.wait_progress()
    play.wait_in_sync()
    play.api.rule = let_pass
    play.notes.append(f"the API server misbehaved {sum(play.api.counts.values())} times: {play.api.counts}")
    play.expect(sum(play.api.counts.values()) > 0, "no request went wrong")


def lose_writes(play: Play) -> None:
    """PUTs of PartitionSets land later, the first of each round and most others; the ISR moves all the same."""
    assert play.api is not None
    counts, chance = play.api.counts, random.Random(play.random.random())
    lost_before = 0

    def rule(method: str, path: str, query: str) -> Behaviour:
        if method != "PUT" or "/partitionsets/" not in path:
            return None
        is_first = counts.get("Lost", 0) == lost_before
        return Lost(chance.choice((0.0, 4.0, 8.0))) if is_first or chance.random() < 0.75 else None

    play.api.rule = rule
    for _ in range(play.rounds):
        lost_before = counts.get("Lost", 0)
        leader = play.leader()
        follower = next(broker for broker in play.brokers if broker != leader)
        with play.journal.fault("writes to the API server lost or late"):
            # The follower lives: only leaders can take it out, and in again.
            with play.cut_off(broker_name(follower), [broker_name(b) for b in play.brokers if b != follower]):
                play.wait_out_of_sync(follower)
                play.wait_progress()
            play.wait_in_sync(90)
            play.wait_progress()
    play.api.rule = let_pass
    play.notes.append(f"{counts.get('Lost', 0)} writes lost or late")
    play.expect(counts.get("Lost", 0) >= play.rounds, "no write was lost")


def forget_topics(play: Play) -> None:
    """An empty API server: brokers keep all data; and when the old one is back, all is there."""
    for _ in range(play.rounds):
        with play.journal.fault("every Topic gone"):
            play.fleet.kill(API)
            backup = play.fleet.copy_api_data(f"backup-{time.monotonic_ns()}")
            play.fleet.restore_api_data(None)
            play.fleet.start_api()
            play.hold(8)
            play.expect(play.fleet.topics() == [], "the empty API server has topics")
            for broker in play.brokers:
                kept = [*play.fleet.data(broker).glob(f"*/{play.uid}-*")]
                play.expect(len(kept) == play.setting.partitions, f"broker {broker} keeps {kept}")
            play.fleet.kill(API)
            play.fleet.restore_api_data(backup)
            play.fleet.start_api()
        for name in (OPERATOR, *map(broker_name, play.brokers)):
            if not play.fleet.is_running(name):
                play.notes.append(f"{name} had ended when its API server was another one")
        play.heal()
        play.fleet.wait_led(TOPIC, play.setting.partitions, 60)
        play.wait_progress()
        play.wait_in_sync()


def go_back(play: Play) -> None:
    """The API server is restored from before some elections: they stop, and `cluster recover` mends it."""
    for _ in range(play.rounds):
        play.fleet.kill(API)
        backup = play.fleet.copy_api_data(f"backup-{time.monotonic_ns()}")
        play.fleet.start_api()
        for _ in range(2):
            leader = play.leader()
            play.fleet.kill(broker_name(leader))
            play.wait_progress()
            play.fleet.start_broker(leader)
            play.wait_in_sync()
        with play.journal.fault("epochs of the past"):
            for broker in play.brokers:
                play.fleet.kill(broker_name(broker))
            play.fleet.kill(API)
            play.fleet.restore_api_data(backup)
            play.fleet.start_api()
            for broker in play.brokers:
                play.fleet.start_broker(broker, wait=False)
            play.hold(8)
            wait_for(lambda: _recover(play), "cluster recover succeeds", _RECOVER_S)
        play.wait_progress()
        play.wait_in_sync()


def _recover(play: Play) -> bool:
    words = [
        "-c",
        "from headrace.cli.main import main; main()",
        "cluster",
        "recover",
        "--yes",
        "--server",
        play.fleet.servers,
    ]
    kubeconfig = str(play.fleet.kubeconfig("client"))
    command = [sys.executable, *words, "--kubeconfig", kubeconfig]
    try:
        done = subprocess.run(command, capture_output=True, timeout=patient(_COMMAND_S), check=False)
    except subprocess.TimeoutExpired:
        return False
    play.notes.append(f"cluster recover: {done.stdout.decode()[-600:]} {done.stderr.decode()[-300:]}")
    return done.returncode == 0


_TWO = Setting(operators=(OPERATOR, _SECOND), unruly_api=True)
SCENARIOS = (
    Scenario("S18", "operators killed, API server away and wrong", trouble_the_control_plane, _TWO, short=1, long=2),
    Scenario(
        "S27", "writes to the API server lost or late", lose_writes, Setting(partitions=1, unruly_api=True), long=4
    ),
    Scenario("S28", "every Topic vanishes", forget_topics, short=1, long=4),
    Scenario("S29", "epochs in the API go back", go_back, short=1, long=4),
)
