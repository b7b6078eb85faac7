"""The brokers of one `headrace dev`; any process that hears SIGTERM stands for one."""

import asyncio
import sys
from pathlib import Path

from headrace.dev.supervisor.child import Fleet, Program
from tests.support.waiting import eventually

LEISURELY = """
import signal, sys, time
def end(*_):
    time.sleep(0.5)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True:
    signal.pause()
"""
"""Takes longer to stop than a fleet waits for all of them at once."""


def no_program(broker: int) -> Program:
    raise AssertionError("nothing is started")


async def test_should_do_nothing_to_a_broker_that_is_gone() -> None:
    async with asyncio.TaskGroup() as tasks:
        fleet = Fleet(no_program, lambda broker: 0, tasks, lambda: None, 1.0)
        fleet.set_pod(3, None)
        fleet.kill(3)
        assert fleet.views() == ()


async def test_should_wait_longer_for_a_broker_that_is_restarted_than_when_all_stop(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = Program("the leisurely one", (sys.executable, "-c", LEISURELY), log, "http://127.0.0.1:1/")
    async with asyncio.TaskGroup() as tasks:
        fleet = Fleet(lambda broker: program, lambda broker: 0, tasks, lambda: None, 0.1)
        fleet.add(0)
        await eventually(lambda: log.exists() and log.read_text() == "up\n", "its handler is set")
        fleet.restart(0)
        child = fleet.children[0]
        await eventually(lambda: child.exited is not None, "its life is over")
        assert child.exited is not None
        assert child.exited.code == 0, "it was not killed"
        await eventually(lambda: log.read_text() == "up\nup\n", "the next one has begun")
        await fleet.stop()
        assert child.pid is None
