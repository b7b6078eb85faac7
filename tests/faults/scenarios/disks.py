"""S8 to S11, S22, S26: power failures, disks that fail, fill up or rot, wrong clocks."""

import errno
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.faults import clock
from tests.faults.fleet import broker_name
from tests.faults.play import Play, Setting
from tests.faults.scenarios.scenario import Scenario
from tests.faults.shim import SYNC, FaultyDisk
from tests.support.waiting import wait_for

_HOUR_S: Final = 3600
_ENDED_S: Final = 60
_FOUND_BY_READING: Final = "a flipped bit in a closed segment"


def fail_power_of_one(play: Play) -> None:
    """What was not synced is gone, of the leader and of followers by turns; syncs take long, so there is some."""
    for number in range(2 * play.rounds):
        leader = play.leader()
        broker = leader if number % 2 == 0 else play.random.choice([b for b in play.brokers if b != leader])
        play.fleet.disks[broker].slow(SYNC, 100)
        play.hold(play.random.uniform(0.2, 1.0))
        with play.journal.fault(f"power failure of broker {broker}"):
            play.fleet.power_fail(broker, play.random.randrange(1000))
            play.hold(play.random.uniform(0.0, 2.0))
        play.fleet.disks[broker].heal()
        play.fleet.start_broker(broker)
        play.wait_progress()
        play.wait_in_sync()


def fail_power_of_all(play: Play) -> None:
    for _ in range(play.rounds):
        for broker in play.brokers:
            play.fleet.disks[broker].slow(SYNC, 50)
        play.hold(1)
        with play.journal.fault("power failure of all brokers"):
            for broker in play.brokers:
                play.fleet.kill(broker_name(broker))
            for broker in play.brokers:
                play.fleet.disks[broker].lose_power(play.random.randrange(1000))
                play.fleet.disks[broker].heal()
                play.fleet.start_broker(broker, wait=False)
            play.wait_progress()
        play.wait_in_sync()


def return_too_soon(play: Play) -> None:
    """A leader is back before its Lease has run out, its unflushed tail gone; then a broker with an empty volume."""
    for _ in range(play.rounds):
        leader = play.leader()
        with play.journal.fault(f"power failure of leader {leader}, back at once"):
            play.fleet.power_fail(leader)
            play.fleet.start_broker(leader)
            play.wait_progress()
        play.wait_in_sync()
        empty = play.random.choice(play.brokers)
        with play.journal.fault(f"broker {empty} back with an empty volume"):
            play.fleet.kill(broker_name(empty))
            play.fleet.disks[empty].close()
            shutil.rmtree(play.fleet.data(empty))
            play.fleet.give_faulty_disk(empty)
            play.fleet.start_broker(empty)
            play.wait_progress()
        play.wait_in_sync()


def rot(play: Play) -> None:
    """On one replica at a time: a torn tail, and flipped bits in files of each kind."""
    for _ in range(play.rounds):
        for what, damage in _DAMAGES:
            leader = play.leader()
            broker = play.random.choice([b for b in play.brokers if b != leader])
            wait_for(partial(_has_closed_segments, play, broker), "there are closed segments", 60)
            with play.journal.fault(f"broker {broker}: {what}"):
                play.fleet.kill(broker_name(broker))
                if not damage(play, broker):
                    play.notes.append(f"nothing to damage for: {what}")
                play.fleet.start_broker(broker)
            play.wait_progress()
            play.wait_in_sync()
            if what == _FOUND_BY_READING:
                _wait_mended(play, broker)


def _wait_mended(play: Play, broker: int) -> None:
    """It reads its segments through, finds the damage, and begins another life to fetch them again."""
    name = broker_name(broker)
    wait_for(lambda: play.fleet.said(name, "the next start cuts the log"), f"broker {broker} finds the damage", 120)
    play.wait_in_sync()


def _directory(play: Play, broker: int) -> Path:
    return play.fleet.data(broker) / "partitions" / f"{play.uid}-0"


def _logs(play: Play, broker: int) -> list[Path]:
    return sorted(_directory(play, broker).glob("*.log"))


def _has_closed_segments(play: Play, broker: int) -> bool:
    return len(_logs(play, broker)) >= 3


def _tear_tail(play: Play, broker: int) -> bool:
    active = _logs(play, broker)[-1]
    content = active.read_bytes()
    active.write_bytes(content[:-37] + bytes(19))
    return len(content) > 37


def _flip_in(pattern: str, *, closed: bool = False) -> Callable[[Play, int], bool]:
    def flip(play: Play, broker: int) -> bool:
        found = sorted(_directory(play, broker).glob(pattern))
        # Of closed ones the oldest: it is below the recovery point for sure, so that no start looks at it.
        for path in found[:-1][:1] if closed else found[-1:]:
            content = bytearray(path.read_bytes())
            if content:
                content[play.random.randrange(len(content))] ^= 1 << play.random.randrange(8)
                path.write_bytes(content)
                return True
        return False

    return flip


_DAMAGES: Final[tuple[tuple[str, Callable[[Play, int], bool]], ...]] = (
    ("a torn tail", _tear_tail),
    ("a flipped bit in an index", _flip_in("*.index", closed=True)),
    ("a flipped bit in the epochs", _flip_in("leader-epoch-checkpoint")),
    ("a flipped bit in a producer snapshot", _flip_in("producer-snapshot")),
    ("a flipped bit in the high watermark", _flip_in("high-watermark-checkpoint")),
    (_FOUND_BY_READING, _flip_in("*.log", closed=True)),
)


def break_disks(play: Play) -> None:
    """I/O errors, a volume remounted read-only, no space: the leader gives up, and comes back when it is well."""
    for _ in range(play.rounds):
        for what, hurt in _HURTS:
            leader = play.leader()
            disk = play.fleet.disks[leader]
            with play.journal.fault(f"broker {leader}: {what}"):
                hurt(disk)
                play.wait_other_leader(leader)
                play.wait_progress()
            disk.heal()
            if what != "no space":
                wait_for(partial(play.fleet.has_ended, broker_name(leader)), "it ends", _ENDED_S)
            if play.fleet.has_ended(broker_name(leader)):
                play.fleet.start_broker(leader)
            play.wait_progress()
            play.wait_in_sync()


_HURTS: Final[tuple[tuple[str, Callable[[FaultyDisk], object]], ...]] = (
    ("syncs fail", lambda disk: disk.fail(SYNC, errno.EIO, path=".log")),
    ("read-only", lambda disk: disk.read_only()),
    ("no space", lambda disk: disk.room(0)),
)


def set_clocks_wrong(play: Play) -> None:
    """One broker is an hour ahead, one an hour behind: elections and the ISR do not care."""
    for broker, offset_s in ((1, _HOUR_S), (2, -_HOUR_S)):
        play.fleet.environments[broker_name(broker)] = clock.environment(offset_s)
    for _ in range(play.rounds):
        for broker in (1, 2):
            play.fleet.kill(broker_name(broker))
            play.fleet.start_broker(broker)
            play.wait_in_sync()
        for _ in range(2):
            leader = play.leader()
            with play.journal.fault(f"clocks an hour off, broker {leader} killed"):
                play.fleet.kill(broker_name(leader))
                play.wait_progress()
            play.fleet.start_broker(leader)
            play.wait_in_sync()


_FAULTY = Setting(faulty_disks=True)
SCENARIOS = (
    Scenario("S8", "power failure of one broker", fail_power_of_one, _FAULTY, short=1, long=6),
    Scenario("S9", "power failure of all brokers", fail_power_of_all, _FAULTY, short=1, long=6),
    Scenario(
        "S10",
        "torn writes and flipped bits on one replica",
        rot,
        Setting(partitions=1, topic={"segment": {"bytes": "64Ki"}}),
        short=1,
        long=3,
    ),
    Scenario("S11", "disks that fail and fill up", break_disks, Setting(partitions=1, faulty_disks=True), long=4),
    Scenario("S22", "clocks an hour off", set_clocks_wrong, short=1, long=4),
    Scenario(
        "S26",
        "back too soon, back with nothing",
        return_too_soon,
        Setting(faulty_disks=True, topic={"durability": "Replicated"}),
        short=1,
        long=6,
    ),
)
