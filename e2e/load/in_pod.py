"""`python load.zip TOPIC PARTITIONS SERVERS`: use a topic until /tmp/load/stop is there, then judge, print the verdict.

Acknowledged so far, by partition, is in /tmp/load/acknowledged while it runs. The verdict is one line on stdout. Exits
with 1 where a promise was broken.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from e2e.load.verdict import Verdict
from headrace.core.errors import HeadraceError
from tests.faults.clients import Client, RawReader, RawWriter, SdkWriter, Whole
from tests.faults.history import History
from tests.faults.journal import Journal
from tests.faults.judge import Report, judge
from tests.support.hardy_clients import join_all

FOLDER = Path("/tmp/load")
STOP, ACKNOWLEDGED = FOLDER / "stop", FOLDER / "acknowledged"
_POLL_S = 0.2
_CALM_S = 120
_SHOWN_MAX = 20
T = TypeVar("T")


def main(topic: str, partitions: str, servers: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    journal = Journal(topic, int(partitions))
    readers = [RawReader(f"reader-{number}", journal, servers, number) for number in range(journal.partitions)]
    raw = [RawWriter(f"raw-{number}", journal, servers, number) for number in range(journal.partitions)]
    writers: list[Client] = [SdkWriter("sdk", journal, servers), *raw]
    for client in (*readers, *writers):
        client.start()
    while not STOP.exists():
        _tell(journal)
        time.sleep(_POLL_S)
    said = end(journal, writers, readers)
    sys.stdout.write(f"{said}\n")
    sys.exit(bool(said.wrong))


def end(journal: Journal, writers: list[Client], readers: list[RawReader]) -> Verdict:
    journal.wrong.extend(f"{name} hangs" for name in join_all(writers, 2 * _CALM_S))
    whole = [_wait(reader.read_all, f"all of partition {number} can be read") for number, reader in enumerate(readers)]
    ends = dict(enumerate(each.end for each in whole))
    for number, reader in enumerate(readers):
        _wait(partial(reader.has_read, {number: ends[number]}), f"{reader.name} reads all")
    journal.wrong.extend(f"{name} hangs" for name in join_all(readers, _CALM_S))
    return verdict(judge(_history(journal, whole, readers)), journal, ends)


def _history(journal: Journal, whole: list[Whole], readers: list[RawReader]) -> History:
    return History(
        writes=journal.writes,
        polls=journal.polls,
        looks=journal.looks,
        final={number: each.rows for number, each in enumerate(whole)},
        idempotent=frozenset(journal.idempotent),
        ends_reached={reader.name: (number,) for number, reader in enumerate(readers)},
    )


def verdict(report: Report, journal: Journal, ends: Mapping[int, int]) -> Verdict:
    return Verdict(
        wrong=[*journal.wrong, *map(str, report.findings)][:_SHOWN_MAX],
        acknowledged=report.acknowledged,
        unknown=report.unknown,
        refused=report.refused,
        read=report.read,
        lost=report.lost,
        duplicated=report.duplicated,
        unavailability_s=_named(report.unavailability_s),
        silence_s=_named(report.silence_s),
        ends=_named(ends),
        failures=dict(journal.failures),
    )


def _named(by_partition: Mapping[int, T]) -> dict[str, T]:
    return {str(partition): value for partition, value in sorted(by_partition.items())}


def _tell(journal: Journal) -> None:
    """In one step: whoever reads it gets it whole."""
    unfinished = ACKNOWLEDGED.with_suffix(".unfinished")
    unfinished.write_text(json.dumps([journal.acknowledged[number] for number in range(journal.partitions)]))
    unfinished.rename(ACKNOWLEDGED)


def _wait(ask: Callable[[], T], what: str) -> T:
    deadline_s = time.monotonic() + _CALM_S
    while True:
        try:
            answer = ask()
        except HeadraceError as error:
            answer, why = None, str(error)
        else:
            why = ""
        if answer:
            return answer
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not within {_CALM_S} s: {what} ({why})")
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
