"""A supervised program, over real processes: a small HTTP server stands for a broker."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.dev.supervisor.child import Child, Program
from headrace.dev.supervisor.layout import free_port_run
from headrace.dev.supervisor.parent_death import dying_with_parent
from tests.support.dev import is_alive
from tests.support.waiting import eventually, wait_for

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def server_program(tmp_path: Path) -> Program:
    port = free_port_run(1, random.Random())
    arguments = (sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path))
    return Program("the server", arguments, tmp_path / "server.log", f"http://127.0.0.1:{port}/")


@asynccontextmanager
async def supervised(program: Program) -> AsyncIterator[Child]:
    child = Child(program, on_change=lambda: None)
    task = asyncio.create_task(child.run())
    try:
        yield child
    finally:
        await child.stop(grace_s=10)
        await task


async def test_should_start_it_again_and_say_so_when_it_was_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with supervised(server_program(tmp_path)) as child:
        await eventually(child.ready.is_set, "ready")
        first = child.pid
        child.kill()
        await eventually(lambda: child.ready.is_set() and child.pid != first, "ready again")
        assert child.restarts == 1
        assert f"the server (process {first}) was killed by SIGKILL: starting it again in 100 ms" in caplog.text
        assert f"the server is ready again, as process {child.pid}" in caplog.text


async def test_should_wait_longer_each_time_when_it_dies_before_it_is_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program("the failure", (sys.executable, "-c", "exit(3)"), tmp_path / "log", "http://127.0.0.1:1/")
    async with supervised(program) as child:
        await eventually(lambda: child.restarts >= 2, "two deaths")
        assert "ended with exit code 3: starting it again in 100 ms" in caplog.text
        assert "starting it again in 200 ms" in caplog.text


async def test_should_stop_without_a_restart(tmp_path: Path) -> None:
    async with supervised(server_program(tmp_path)) as child:
        await eventually(child.ready.is_set, "ready")
        await child.stop(grace_s=10)
        assert (child.pid, child.restarts) == (None, 0)


async def test_should_kill_it_when_it_does_not_stop_in_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = Program("the stubborn one", (sys.executable, "-c", STUBBORN), log, "http://127.0.0.1:1/")
    async with supervised(program) as child:
        await eventually(lambda: log.exists() and log.read_text() == "up\n", "its handler is set")
        await child.stop(grace_s=0.1)
        assert child.pid is None


def test_should_leave_no_child_running_when_the_parent_is_killed(tmp_path: Path) -> None:
    grandchild = dying_with_parent(
        [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
    )
    grandchild[grandchild.index(str(os.getpid()))] = "PARENT"
    script = (
        f"import os, subprocess; subprocess.run([str(os.getpid()) if a == 'PARENT' else a for a in {grandchild!r}])"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not is_alive(pid), "the grandchild is gone")
