"""Programs that a fork server forks: what they find, whose children they are, who dies with whom."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.dev.supervisor.forking import PROGRAMS, Forked, ForkServer, Running, execute
from tests.support.api_server import embedded_api
from tests.support.dev import is_alive, kill
from tests.support.waiting import eventually, wait_for

WORLD = "tests.support.forked_world"
COMMAND = (sys.executable, "-m", WORLD)

PARENT = f"""
import asyncio, sys
from headrace.dev.supervisor.forking import ForkServer

async def main():
    forks = ForkServer({{"{WORLD}": ("{WORLD}",)}})
    forks.start()
    with open(sys.argv[1], "wb") as output:
        await forks.run((sys.executable, "-m", "{WORLD}", "wait"), output)
    print(forks.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""

DRAWING = """
import json, os, random, sys, threading

who = {"draws": []}

def noted(draw):
    def note(*args, **kwargs):
        who["draws"].append(sys._getframe(1).f_globals["__name__"])
        return draw(*args, **kwargs)
    return note

class Random(random.Random):
    def __init__(self, *args):
        who["draws"].append(sys._getframe(1).f_globals["__name__"])
        super().__init__(*args)

os.urandom = random._urandom = noted(os.urandom)
for name in ("random", "getrandbits", "randrange", "randint", "choice", "shuffle", "sample", "uniform", "seed"):
    setattr(random, name, noted(getattr(random, name)))
random.Random = Random

def state():
    return {"threads": len(os.listdir("/proc/self/task")), "known": threading.active_count(),
            "descriptors": len(os.listdir("/proc/self/fd"))}

before = state()
for module in sys.argv[1].split(","):
    __import__(module)
import asyncio, random
who["loop"] = asyncio._get_running_loop() is not None or asyncio.get_event_loop_policy()._local._loop is not None
print(json.dumps({**who, "before": before, "after": state()}))
"""
DRAWING_LIBRARIES = {"rich.style", "multiprocessing.process", "aiohttp._websocket.writer"}
"""They number styles, and make a key for processes and masks for WebSockets: nobody here has either."""


@asynccontextmanager
async def forking(*, kept: bool = False) -> AsyncIterator[ForkServer]:
    """A server of one program; somebody starts it again where it is `kept`."""
    forks = ForkServer({WORLD: (WORLD,)})
    forks.start()
    keeping = asyncio.create_task(forks.keep()) if kept else None
    try:
        yield forks
    finally:
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait([keeping])
        forks.close()


@contextmanager
def output(path: Path) -> Iterator[Any]:
    with path.open("ab", buffering=0) as file:
        yield file


async def fork(forks: ForkServer, log: Path, *arguments: str) -> Forked:
    """Fork it; fails where it is executed instead."""
    with output(log) as file:
        started = await forks.run((*COMMAND, *arguments), file)
    assert isinstance(started, Forked)
    return started


async def told(log: Path) -> dict[str, Any]:
    await eventually(lambda: has_told(log), "it has told its world")
    return world_in(log)


def has_told(log: Path) -> bool:
    return log.exists() and log.read_text().endswith("\n")


def world_in(log: Path) -> dict[str, Any]:
    world: dict[str, Any] = json.loads(log.read_text().splitlines()[0])
    return world


async def end(process: Running) -> None:
    process.send_signal(signal.SIGKILL)
    await process.wait()


@pytest.fixture
def deaf() -> Iterator[None]:
    """A process is deaf to SIGINT where a shell starts it in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("deaf")
async def test_should_stay_deaf_to_the_terminal_where_its_parent_is(tmp_path: Path) -> None:
    async with forking() as forks:
        await (await fork(forks, tmp_path / "log", "end")).wait()
    assert (await told(tmp_path / "log"))["same"]["handlers"][0] == str(signal.SIG_IGN)


async def test_should_find_the_same_world_forked_as_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    async with forking() as forks:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("NAME", "value of äöü \udcff")
        monkeypatch.delenv("HOME", raising=False)
        environment = dict(os.environ)
        forked = await fork(forks, log, "7", "--option", "")
        assert await forked.wait() == 7
        after_fork = await told(log)
        log.unlink()
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        with output(log) as file:
            executed = await execute((*COMMAND, "7", "--option", ""), file)
        assert await executed.wait() == 7
        after_exec = await told(log)
    # Libraries set variables past Python, which are handed on to what is executed: nobody here relies on that.
    found, executed_with = after_fork["same"].pop("environment"), after_exec["same"].pop("environment")
    assert found == environment
    del executed_with["PYTHONPATH"]
    environment.pop("PYTHONPATH", None)
    assert environment == {name: executed_with.get(name) for name in environment}
    assert after_fork["same"] == after_exec["same"]
    assert after_fork["parent"] == os.getpid()
    assert after_fork["pid"] == forked.pid
    assert set(after_fork["same"]["descriptors"]) == {"0", "1", "2"}


async def test_should_tell_how_it_ended(tmp_path: Path) -> None:
    async with forking() as forks:
        assert await (await fork(forks, tmp_path / "ends", "end")).wait() == 0
        assert await (await fork(forks, tmp_path / "fails", "fail")).wait() == 1
        assert "ValueError: as it was told" in (tmp_path / "fails").read_text()
        for number in (signal.SIGTERM, signal.SIGKILL):
            log = tmp_path / number.name
            waiting = await fork(forks, log, "wait")
            await told(log)
            waiting.send_signal(number)
            assert list(await asyncio.gather(waiting.wait(), waiting.wait())) == [-number] * 2
            waiting.send_signal(number)  # as to a process that is gone


async def test_should_draw_other_numbers_in_each_process(tmp_path: Path) -> None:
    drawn = []
    async with forking() as forks:
        for number in range(2):
            log = tmp_path / str(number)
            await (await fork(forks, log, "end")).wait()
            drawn.append((await told(log))["drawn"])
    assert all(drawn[0][source] != drawn[1][source] for source in drawn[0])


async def test_should_start_another_server_and_let_live_what_was_forked_when_it_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with forking(kept=True) as forks:
        old = await fork(forks, tmp_path / "old", "wait")
        server = forks.pid
        assert server is not None
        kill(server)
        await eventually(lambda: forks.pid not in (None, server), "another server")
        assert "the fork server died: starting it again in 100 ms" in caplog.text
        new = await fork(forks, tmp_path / "new", "wait")
        assert (await told(tmp_path / "new"))["parent"] == os.getpid()
        assert old.poll() is None
        await end(old)
        await end(new)


async def test_should_execute_a_program_and_say_so_when_the_server_is_dead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    async with forking() as forks:
        assert forks.pid is not None
        kill(forks.pid)
        with output(log) as file:
            executed = await forks.run((*COMMAND, "3"), file)
        assert await executed.wait() == 3
    assert not isinstance(executed, Forked)
    assert f"{WORLD} is executed, not forked: " in caplog.text


async def test_should_execute_a_program_when_the_server_dies_over_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with forking() as forks:
        starting = await ordered_of_a_stopped_server(forks, tmp_path / "log")
        assert forks.pid is not None
        kill(forks.pid)
        executed = await starting
        assert not isinstance(executed, Forked)
        assert f"{WORLD} is executed, not forked: the fork server has died" in caplog.text
        await told(tmp_path / "log")
        await end(executed)


async def test_should_run_nothing_that_nobody_waits_for_any_more(tmp_path: Path) -> None:
    before = children()
    async with forking() as forks:
        starting = await ordered_of_a_stopped_server(forks, tmp_path / "given up")
        starting.cancel()
        await asyncio.wait([starting])
        assert forks.pid is not None
        os.kill(forks.pid, signal.SIGCONT)
        # It has forked the other one before.
        await (await fork(forks, tmp_path / "log", "end")).wait()
        assert children() == {*before, str(forks.pid)}
    assert (tmp_path / "given up").read_text() == ""


async def ordered_of_a_stopped_server(forks: ForkServer, log: Path) -> "asyncio.Task[Running]":
    """A start that waits for the server, which has its order and does nothing."""
    assert forks.pid is not None
    os.kill(forks.pid, signal.SIGSTOP)

    async def ordered() -> Running:
        with output(log) as file:
            return await forks.run((*COMMAND, "wait"), file)

    starting = asyncio.create_task(ordered())
    await asyncio.sleep(0)  # it runs until it waits for the answer
    return starting


async def test_should_execute_what_it_does_not_know_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with forking() as forks:
        with output(tmp_path / "log") as file:
            executed = await forks.run((sys.executable, "-c", "exit(4)"), file)
        assert await executed.wait() == 4
    assert caplog.text == ""


async def test_should_say_why_when_a_program_cannot_be_loaded(tmp_path: Path) -> None:
    forks = ForkServer({"tests.support.absent": ("tests.support.absent",)})
    with contextlib.closing(forks):
        forks.start()
        with output(tmp_path / "log") as file:
            started = await forks.run((sys.executable, "-m", "tests.support.absent"), file)
        assert await started.wait() == 1
    assert isinstance(started, Forked)
    assert "No module named 'tests.support.absent'" in (tmp_path / "log").read_text()


async def test_should_leave_no_descriptors_and_no_processes_behind(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")), children()
    async with forking() as forks:
        for number in range(3):
            await (await fork(forks, tmp_path / str(number), "end")).wait()
        assert children() == {*before[1], str(forks.pid)}
    assert (len(os.listdir("/proc/self/fd")), children()) == before


def children() -> set[str]:
    """The pids of this process's children, zombies included."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_should_leave_neither_server_nor_programs_running_when_their_parent_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with subprocess.Popen([sys.executable, "-c", PARENT, str(log)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        wait_for(lambda: has_told(log), "its child has told its world")
        world = world_in(log)
        assert world["parent"] == parent.pid
        parent.kill()
    wait_for(lambda: not is_alive(world["pid"]), "the child is gone")
    wait_for(lambda: not is_alive(server), "the server is gone")


def test_should_start_no_thread_and_no_loop_and_draw_no_numbers_when_it_loads_the_programs() -> None:
    modules = [module for needed in PROGRAMS.values() for module in needed]
    done = subprocess.run(
        [sys.executable, "-c", DRAWING, ",".join(modules)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert set(found["draws"]) <= DRAWING_LIBRARIES
    assert found["after"] == found["before"]
    assert not found["loop"]


def test_should_fork_what_tests_start_but_not_for_another_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded_api(tmp_path / "forked") as api:
        assert os.getsid(api.process.pid) == api.process.pid
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    with embedded_api(tmp_path / "executed") as api:
        assert os.getsid(api.process.pid) == os.getsid(0)
