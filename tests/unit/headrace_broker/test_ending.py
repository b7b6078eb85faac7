"""A life ends when it is asked to, for damage that another life mends, or because its disk failed."""

import asyncio
import signal

import pytest

from headrace_broker.ending import DiskFailedError, Ending, StoppedEarlyError


async def test_should_hurry_when_asked_a_second_time() -> None:
    ending = Ending()
    ending.ask(signal.SIGTERM)
    assert (ending.asked.done(), ending.hurry.done()) == (True, False)
    ending.ask(signal.SIGTERM)
    assert ending.hurry.done()
    ending.mend("a log is damaged")
    assert not ending.returns


async def test_should_begin_no_other_life_when_asked_to_stop_while_one_ends_for_damage() -> None:
    ending = Ending()
    ending.mend("a log is damaged")
    assert (ending.asked.done(), ending.returns) == (True, True)
    ending.ask(signal.SIGTERM)
    assert (ending.hurry.done(), ending.returns) == (False, False)
    ending.ask(signal.SIGTERM)
    assert ending.hurry.done()


async def test_should_do_the_work_unless_asked_to_stop() -> None:
    ending, never = Ending(), asyncio.Event()
    assert await ending.unless_asked(asyncio.sleep(0, "done")) == "done"
    waiting = asyncio.create_task(ending.unless_asked(never.wait()))
    await asyncio.sleep(0)
    ending.ask(signal.SIGINT)
    with pytest.raises(StoppedEarlyError):
        await waiting


async def test_should_end_every_wait_when_the_disk_fails_or_a_task_does() -> None:
    async def fail() -> None:
        raise ValueError("a mistake")

    ending = Ending()
    with pytest.raises(ValueError, match="a mistake"):
        await ending.wait(ending.asked, [asyncio.create_task(fail())])
    ending.fail("no space")
    ending.fail("no space again")
    with pytest.raises(DiskFailedError, match=r"this broker stops: no space$"):
        await ending.wait(ending.asked, [])
