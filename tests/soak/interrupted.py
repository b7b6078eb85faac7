"""The SDK's four clients under Ctrl-C and cancellations: so many calls, shared out among users of each.

In the main thread, for signals are handled there. What a user finds wrong is told with its stack; what hangs ends the
process, and says where it does.
"""

import asyncio
import faulthandler
import gc
import logging
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import click

from tests.soak.verdict import Findings
from tests.support.cancelled_clients import AsyncConsumerUser, AsyncProducerUser, CancelledUser
from tests.support.cluster import Cluster
from tests.support.interrupted_clients import PARTITIONS, ConsumerUser, ProducerUser, User, fill
from tests.support.patience import patient
from tests.support.waiting import wait_for

_USERS: Final = 6
_HANGS_S: Final = 60
"""Longer than a member that is gone keeps its partitions."""


def interrupt_clients(cluster: Cluster, seed: int, count: int, findings: Findings) -> None:
    """Interrupt `count` calls, and judge what the users of the clients have found."""
    server, each = cluster.url(0), -(-count // _USERS)
    topics = {name: f"interrupted-{name}" for name in ("written", "sent", "read")}
    for topic in topics.values():
        cluster.create_topic(topic, partitions=PARTITIONS)
    fill(server, topics["read"])
    users: list[User | CancelledUser] = [
        ProducerUser(server, topics["written"], Random(seed)),
        ConsumerUser(server, topics["read"], Random(seed)),
        ConsumerUser(server, topics["read"], Random(seed), is_shared=True),
        AsyncProducerUser(server, topics["sent"], Random(seed)),
        AsyncConsumerUser(server, topics["read"], Random(seed)),
        AsyncConsumerUser(server, topics["read"], Random(seed), is_shared=True),
    ]
    before = len(_threads())
    with _expected():
        for user in users:
            _judge(user, each, findings)
    total = sum(user.struck.total() for user in users)
    left = [] if _have_ended(before) else _threads()
    findings.judge(f"no client leaves a thread behind after {total} interrupted calls", left)


def _judge(user: User | CancelledUser, count: int, findings: Findings) -> None:
    try:
        if isinstance(user, User):
            _interrupt(user, count)
        else:
            asyncio.run(_cancel(user, count))
        wrong = []
    except Exception as error:
        wrong = ["".join(traceback.format_exception(error))]
    finally:
        faulthandler.cancel_dump_traceback_later()
    struck = user.struck
    click.echo(f"soak: {user.name}: {struck.total()} calls interrupted: {_told(struck)}")
    findings.judge(f"{user.name}: {struck.total()} calls interrupted, nothing skipped, doubled or hung", wrong)


def _interrupt(user: User, count: int) -> None:
    while user.struck.total() < count:
        faulthandler.dump_traceback_later(patient(_HANGS_S), exit=True)
        user.step()
    user.end()


async def _cancel(user: CancelledUser, count: int) -> None:
    while user.struck.total() < count:
        faulthandler.dump_traceback_later(2 * patient(_HANGS_S), exit=True)
        async with asyncio.timeout(patient(_HANGS_S)):
            await user.step()
    async with asyncio.timeout(patient(_HANGS_S)):
        await user.end()


def _told(struck: Counter[str]) -> str:
    return ", ".join(f"{method} {count}" for method, count in struck.most_common())


@contextmanager
def _expected() -> Iterator[None]:
    """Nobody is told of an interrupt while Python throws a generator away, nor of what a cancelled close has left."""
    hook, log = sys.unraisablehook, logging.getLogger("headrace.client.producer.async_sender")

    def tell(unraisable: Any) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            hook(unraisable)

    level = log.level
    sys.unraisablehook = tell
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        log.setLevel(level)


def _have_ended(before: int) -> bool:
    try:
        wait_for(lambda: len(_threads()) <= before, "threads end", 20)
    except AssertionError:
        return False
    return True


def _threads() -> list[str]:
    gc.collect()
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace-")]
