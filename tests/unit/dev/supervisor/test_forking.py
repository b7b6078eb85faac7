"""The programs that a fork server forks; it is never started here."""

import os
import sys

import pytest

from headrace.dev.supervisor.fork_server import Order
from headrace.dev.supervisor.forking import PROGRAMS, ForkServer

COMMAND = (sys.executable, "-m", "headrace_broker.main", "--id", "0")


def test_should_fork_each_of_its_programs() -> None:
    for module in PROGRAMS:
        assert ForkServer().can_fork((sys.executable, "-m", module), os.environ)


@pytest.mark.parametrize(
    "command",
    [
        (sys.executable, "-m", "http.server"),
        (sys.executable, "-c", "headrace_broker.main"),
        ("nsenter", *COMMAND),
        ("/usr/bin/python4", *COMMAND[1:]),
        (sys.executable,),
    ],
)
def test_should_not_fork_what_it_is_not_or_what_another_program_runs(command: tuple[str, ...]) -> None:
    assert not ForkServer().can_fork(command, os.environ)


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONMALLOC", "MALLOC_PERTURB_", "LC_ALL", "GLIBC_TUNABLES"])
def test_should_not_fork_what_wants_another_interpreter(name: str) -> None:
    assert not ForkServer().can_fork(COMMAND, {**os.environ, name: "other"})


def test_should_fork_what_wants_other_variables_of_its_own() -> None:
    assert ForkServer().can_fork(COMMAND, {**os.environ, "HEADRACE_SERVER": "http://127.0.0.1:1"})


def test_should_read_an_order_as_it_was_written() -> None:
    order = Order(("a.main", "b"), COMMAND, ("--id", "0"), {"NAME": "not UTF-8: \udcff"})
    assert Order.parse(order.to_bytes()) == order
