"""The brokers of one `headrace dev`, as far as no process is needed."""

import asyncio

from headrace.dev.supervisor.child import Program
from headrace.dev.supervisor.fleet import Fleet


def no_program(broker: int) -> Program:
    raise AssertionError("nothing is started")


async def test_should_do_nothing_to_a_broker_that_is_gone() -> None:
    async with asyncio.TaskGroup() as tasks:
        fleet = Fleet(no_program, lambda broker: 0, tasks, lambda: None, 1.0)
        fleet.set_pod(3, None)
        fleet.kill(3)
        assert fleet.views() == ()
