"""`python -m tests.faults.member`: members of a consumer group in a process of their own, for others to hurt.

One reads with the SDK for threads; with `--crowd N` there are so many at once, with the SDK for event loops. Each fact
is a line of the journal the moment it is one (a system call each, so that kill -9 takes nothing back): what a member is
given and has to give up, each record before its user goes on, what it commits and hears of that. SIGTERM ends it as a
program ends: what it has done is committed, and it leaves. A member that may not go on (`FencedInstance`) says so and
ends with 3.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from headrace import AsyncConsumer, Consumer, Record, TopicPartition
from headrace.core.errors import FencedInstanceError, FencedMemberError, HeadraceError

_AUTO_COMMIT_MS: Final = 200
_COMMIT_EVERY: Final = 10
"""Records, of a member that commits by itself."""
_KNOCK_S: Final = 0.05
EXIT_FENCED: Final = 3


@dataclass(slots=True)
class Diary:
    """Of one member."""

    member: str
    _file: int

    def note(self, what: str, **facts: Any) -> None:
        line = json.dumps({"member": self.member, "at": time.monotonic(), "what": what, **facts})
        os.write(self._file, line.encode() + b"\n")

    def given(self, record: Record) -> None:
        value = (record.value or b"").decode()
        self.note("given", partition=record.partition, offset=record.offset, value=value)

    def owning(self, what: str) -> Callable[[list[TopicPartition]], None]:
        """A callback that notes what is assigned, revoked or lost."""
        return lambda places: self.note(what, partitions=[place.partition for place in places])


@click.command()
@click.argument("name")
@click.option("--journal", type=click.Path(path_type=Path), required=True)
@click.option("--server", required=True)
@click.option("--group", required=True)
@click.option("--topic", required=True)
@click.option("--instance", help="A static member, of this id.")
@click.option("--commits", is_flag=True, help="By itself, exactly what it has done; else on an interval.")
@click.option("--crowd", type=click.IntRange(min=1), help="So many members, named NAME-0 and on.")
def main(name: str, journal: Path, crowd: int | None, **options: Any) -> None:
    """Be a member until SIGTERM."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    file = os.open(journal, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    if crowd is not None:
        diaries = [Diary(f"{name}-{number}", file) for number in range(crowd)]
        asyncio.run(_read_together(diaries, options["server"], options["group"], options["topic"]))
        return
    diary = Diary(name, file)
    diary.note("begins")
    signal.signal(signal.SIGTERM, _leave)
    try:
        while not _Member(diary, **options).read():
            time.sleep(_KNOCK_S)
    except FencedInstanceError as error:
        diary.note("fenced", code=error.code)
        sys.exit(EXIT_FENCED)


class _LeavingError(Exception):
    """Told to end."""


def _leave(_number: int, _frame: object) -> None:
    raise _LeavingError


class _Member:
    """One consumer, and how far its user is."""

    def __init__(
        self, diary: Diary, server: str, group: str, topic: str, instance: str | None, *, commits: bool
    ) -> None:
        self._diary = diary
        self._commits = commits
        self._done: dict[TopicPartition, int] = {}
        """Not committed yet."""
        self._commits_asked = 0
        self._server, self._group, self._topic, self._instance = server, group, topic, instance

    def _make(self) -> Consumer:
        return Consumer(
            self._topic,
            server=self._server,
            group=self._group,
            instance_id=self._instance,
            auto_commit=not self._commits,
            auto_commit_interval_ms=_AUTO_COMMIT_MS,
            on_assigned=self._diary.owning("assigned"),
            on_revoked=self._revoked,
            on_lost=self._lost,
        )

    def read(self) -> bool:
        """Whether it was told to end: after any error but FencedInstanceError another consumer may follow."""
        try:
            with self._make() as self._consumer:
                self._read()
        except _LeavingError:
            return True
        except FencedInstanceError:
            raise
        except HeadraceError as error:
            self._diary.note("failed", code=error.code, why=error.message)
        return False

    def _read(self) -> None:
        try:
            for record in self._consumer:
                self._diary.given(record)
                self._done[TopicPartition(self._topic, record.partition)] = record.offset + 1
                if self._commits and record.offset % _COMMIT_EVERY == 0:
                    self._commit(dict(self._done))
        finally:
            if self._commits:
                self._commit(dict(self._done))

    def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        if not offsets:
            return
        self._commits_asked += 1
        number, said = self._commits_asked, {place.partition: offset for place, offset in offsets.items()}
        self._diary.note("commits", number=number, offsets=said)
        code = ""
        try:
            self._consumer.commit(offsets)
        except HeadraceError as error:
            code = error.code
            if isinstance(error, FencedMemberError):
                self._done.clear()
        self._diary.note("told", number=number, code=code)
        for place, offset in offsets.items() if not code else ():
            if self._done.get(place) == offset:
                del self._done[place]

    def _revoked(self, places: list[TopicPartition]) -> None:
        if self._commits:
            self._commit({place: self._done[place] for place in places if place in self._done})
        self._gone("revoked", places)

    def _lost(self, places: list[TopicPartition]) -> None:
        self._gone("lost", places)

    def _gone(self, what: str, places: list[TopicPartition]) -> None:
        for place in places:
            self._done.pop(place, None)
        self._diary.owning(what)(places)


async def _read_together(diaries: list[Diary], server: str, group: str, topic: str) -> None:
    """All join at once, and leave at SIGTERM."""
    tasks = [asyncio.create_task(_read_one(diary, server, group, topic)) for diary in diaries]
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _cancel, tasks)
    await asyncio.gather(*tasks, return_exceptions=True)


def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


async def _read_one(diary: Diary, server: str, group: str, topic: str) -> None:
    diary.note("joins")
    while True:
        try:
            async with AsyncConsumer(
                topic,
                server=server,
                group=group,
                auto_commit_interval_ms=_AUTO_COMMIT_MS,
                on_assigned=diary.owning("assigned"),
                on_revoked=diary.owning("revoked"),
                on_lost=diary.owning("lost"),
            ) as consumer:
                async for record in consumer:
                    diary.given(record)
        except HeadraceError as error:
            diary.note("failed", code=error.code, why=error.message)
            await asyncio.sleep(_KNOCK_S)


if __name__ == "__main__":
    main()
