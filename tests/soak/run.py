"""One soak from its topics to its verdict: load, kills, samples; then calm, the last reading, and the judges."""

import random
import threading
import time
from collections.abc import Callable
from typing import Final

import click

from headrace.core.records.columns import decode_batches
from headrace.core.units import format_bytes
from headrace.http2.blocking_transport import BlockingTransport
from tests.soak.brokers import BROKERS, Brokers
from tests.soak.crowd import Crowd
from tests.soak.journal import ROWS, STEADY, Sample, batch_of, wrong_keys
from tests.soak.load import Dawdler, Follower, KeyedWriter, Trimmer, Writer
from tests.soak.member import Place, fetch, start_of
from tests.soak.sdk import SdkReader, SdkWriter
from tests.soak.verdict import Findings, History, judge_history, judge_memory
from tests.support.history import Entry
from tests.support.waiting import wait_for

PARTITIONS: Final = 3
WRITERS_PER_PARTITION: Final = 2
MIB: Final = 1 << 20
SIZE_BYTES: Final = 4 * MIB
"""Retention by size, for each partition."""
SIZE_SEGMENT_BYTES: Final = 1 * MIB
TIME_S: Final = 8
"""Retention by time."""
TIME_SLACK_S: Final = 15
"""Until what is too old is gone: its segment is closed and looked at, and its broker may have been killed."""
KEYED_SEGMENT_BYTES: Final = 1 * MIB
KEYED_BYTES_MAX: Final = 32 * MIB
"""Of one compacted partition: what compaction has not come to yet."""
BULK_BYTES_MAX: Final = SIZE_BYTES + 32 * MIB
"""Where syncs are rare, segments may outgrow their size until the next look (`UNSYNCED_SEGMENTS_MAX`)."""
OTHER_BYTES_MAX: Final = 16 * MIB
"""Indexes, checkpoints, and what was written without an answer."""
KILL_EVERY_S: Final = (4.0, 9.0)
PROGRESS_EVERY_S: Final = 5.0
CALM_S: Final = 60.0
SOCKETS_MAX: Final = 16
"""Of one broker without clients: its listener, the API server, other brokers, the event loop's own."""


class Soak:
    def __init__(self, brokers: Brokers, choose: random.Random) -> None:
        self._brokers = brokers
        self._choose = choose
        self._findings = Findings()
        self._samples: list[Sample] = []
        self._too_early: list[str] = []
        self._too_much: list[str] = []
        self._ended: list[str] = []
        self._batch_bytes = len(batch_of(b"name", 0))
        retention = {"bytes": str(SIZE_BYTES), "time": "unlimited"}
        self._sized = brokers.create_topic(
            "sized", PARTITIONS, retention=retention, segment={"bytes": str(SIZE_SEGMENT_BYTES)}
        )
        self._timed = brokers.create_topic(
            "timed", PARTITIONS, retention={"time": f"{TIME_S}s"}, segment={"time": "2s"}, durability="Replicated"
        )
        self._keyed = brokers.create_topic(
            "keyed", PARTITIONS, cleanupPolicy="Compact", segment={"bytes": str(KEYED_SEGMENT_BYTES)}
        )
        self._bulk = brokers.create_topic(
            "bulk", PARTITIONS, retention=retention, segment={"bytes": str(SIZE_SEGMENT_BYTES)}, durability="Replicated"
        )
        places = [*self._sized, *self._timed]
        self._crowd = Crowd(
            writers=[Writer(place, number) for number, place in enumerate(places * WRITERS_PER_PARTITION)],
            keyed=[KeyedWriter(place) for place in self._keyed],
            followers=[Follower(place) for place in places],
            dawdlers=[Dawdler(place) for place in self._sized],
            trimmers=[Trimmer(self._sized[-1])],
            sdk_writers=[SdkWriter(self._bulk, brokers.server)],
            sdk_readers=[SdkReader(self._bulk, brokers.server)],
        )
        self._started_s = time.monotonic()

    def run(self, seconds: int) -> Findings:
        self._crowd.start()
        self._strain(seconds)
        click.echo("soak: the load ends; everything is read once more")
        crowd, findings = self._crowd, self._findings
        crowd.stop()
        self._brokers.wait_ready()
        history = self._history()
        judge_history(history, findings)
        judge_history(self._bulk_history(), findings, by=" by the SDK")
        findings.judge("retention by time never deleted what was too young", self._too_early)
        findings.judge("retention has deleted from every partition", self._never_deleted(history))
        findings.judge("compaction has run", self._never_compacted())
        self._judge_keys()
        judge_memory(self._samples, findings)
        findings.judge("the disk never held more than retention and compaction leave", self._too_much)
        findings.judge("no deleted file stays open", _left(self._brokers.deleted_files, 0))
        findings.judge("no connection stays open", _left(self._brokers.sockets, BROKERS * SOCKETS_MAX))
        findings.judge("no broker ended by itself", self._ended)
        findings.judge(self._what_was_done(), [wrong for member in crowd.members for wrong in member.troubles.wrong])
        return findings

    def _strain(self, seconds: int) -> None:
        now_s, pause = 0.0, threading.Event()
        next_kill_s = self._choose.uniform(*KILL_EVERY_S)
        next_progress_s = 0.0
        while now_s < seconds:
            pause.wait(1.0)
            now_s = time.monotonic() - self._started_s
            self._look(now_s)
            if now_s >= next_progress_s:
                self._tell(now_s)
                next_progress_s += PROGRESS_EVERY_S
            if next_kill_s <= now_s < seconds - KILL_EVERY_S[0]:
                self._brokers.kill_one(self._choose)
                next_kill_s = now_s + self._choose.uniform(*KILL_EVERY_S)

    def _look(self, now_s: float) -> None:
        self._samples += self._brokers.sample(now_s)
        self._ended += self._brokers.ended()
        held, allowed = self._brokers.data_bytes(), self._bytes_allowed()
        if held > allowed:
            self._too_much.append(f"at {now_s:.0f} s: {format_bytes(held)}, allowed were {format_bytes(allowed)}")
        with BlockingTransport(connect_timeout_s=1) as transport:
            for place in self._timed:
                self._look_at_start(transport, place)

    def _look_at_start(self, transport: BlockingTransport, place: Place) -> None:
        start = start_of(transport, place)
        young_s = time.monotonic() - TIME_S
        if start is None:
            return
        for writer in self._crowd.writers:
            if writer.place is place:
                self._too_early += [
                    f"{entry} when the log began at {start // ROWS}"
                    for entry in writer.sent_since(young_s)
                    if entry.offset < start // ROWS
                ]

    def _bytes_allowed(self) -> int:
        old_s = time.monotonic() - TIME_S - TIME_SLACK_S
        timed = [writer for writer in self._crowd.writers if writer.place in self._timed]
        recent = sum(len(writer.sent_since(old_s)) for writer in timed)
        by_size = SIZE_BYTES + 3 * SIZE_SEGMENT_BYTES
        fixed = PARTITIONS * (by_size + BULK_BYTES_MAX + KEYED_BYTES_MAX) + OTHER_BYTES_MAX
        return fixed + int(1.02 * recent * self._batch_bytes)

    def _tell(self, now_s: float) -> None:
        latest = {sample.broker: sample for sample in self._samples[-12:]}
        memory = " ".join(f"{format_bytes(latest[broker].rss_bytes)}" for broker in sorted(latest))
        files = " ".join(str(latest[broker].open_files) for broker in sorted(latest))
        written, read = self._crowd.batches_written, self._crowd.batches_read
        click.echo(
            f"soak: {now_s:4.0f} s  {written * ROWS:>9} records written  {read * ROWS:>9} read"
            f"  {self._brokers.kills} kills  memory {memory}  files {files}"
            f"  disk {format_bytes(self._brokers.data_bytes())}",
        )

    def _history(self) -> History:
        seen: list[Entry] = []
        skipped: dict[int, list[range]] = {}
        final: list[Entry] = []
        starts: dict[int, int] = {}
        for follower in self._crowd.followers:
            place = follower.place
            self._read_to_end(follower)
            seen += follower.seen
            skipped[place.number] = follower.skipped
            last = Follower(place)
            self._read_to_end(last)
            starts[place.number] = last.skipped[-1].stop if last.skipped else 0
            final += [entry for entry in last.seen if entry.offset >= starts[place.number]]
            follower.troubles.wrong += last.troubles.wrong
        acknowledged = [entry for writer in self._crowd.writers for _, entry in writer.acknowledged]
        return History(acknowledged, seen, skipped, final, starts)

    def _bulk_history(self) -> History:
        (writer,), (reader,) = self._crowd.sdk_writers, self._crowd.sdk_readers
        seen, skipped, final, starts = list(reader.seen), dict(reader.skipped), list[Entry](), dict[int, int]()
        for place, offset in zip(self._bulk, reader.offsets, strict=True):
            rest, last = Follower(place), Follower(place)
            rest.offset = offset
            self._read_to_end(rest)
            seen += rest.seen
            skipped[place.number] = [*skipped[place.number], *rest.skipped]
            self._read_to_end(last)
            starts[place.number] = last.skipped[-1].stop if last.skipped else 0
            final += last.seen
            reader.troubles.wrong += [*rest.troubles.wrong, *last.troubles.wrong]
        return History(writer.acknowledged, seen, skipped, final, starts)

    def _read_to_end(self, follower: Follower) -> None:
        with BlockingTransport() as transport:

            def is_there() -> bool:
                high_watermark = follower.read_on(transport)
                return 0 <= high_watermark <= follower.offset

            wait_for(is_there, f"the end of {follower.place}", CALM_S)

    def _never_deleted(self, history: History) -> list[str]:
        return [str(place) for place in (*self._sized, *self._timed) if history.starts[place.number] == 0]

    def _never_compacted(self) -> list[str]:
        passes = self._brokers.metric(STEADY, 'headrace_broker_compaction_passes_total{outcome="done"}')
        return [] if passes else ["not one pass on the broker that lived all along"]

    def _judge_keys(self) -> None:
        wrong: list[str] = []
        records = 0
        for writer in self._crowd.keyed:
            found: dict[bytes, bytes | None] = {}
            with BlockingTransport() as transport:
                offset, end = start_of(transport, writer.place) or 0, 1
                while offset < end:
                    answer = fetch(transport, writer.place, offset)
                    assert answer.status == 200, answer.body
                    for batch in decode_batches(answer.body):
                        for _, record in batch.rows():
                            assert record.key is not None
                            found[record.key] = record.value
                            records += 1
                    offset = int(answer.headers["headrace-next-offset"])
                    end = int(answer.headers.get("headrace-high-watermark", offset + 1))
            wrong += wrong_keys(writer.words, found)
        self._findings.judge(f"the last value of each key is right ({records} records are left of all)", wrong)

    def _what_was_done(self) -> str:
        crowd = self._crowd
        written, read = crowd.batches_written * ROWS, crowd.batches_read * ROWS
        keyed = sum(writer.batches for writer in crowd.keyed)
        skipped = crowd.batches_skipped * ROWS
        sips = format_bytes(sum(dawdler.taken_bytes for dawdler in crowd.dawdlers))
        deletions = sum(trimmer.deletions for trimmer in crowd.trimmers)
        failures = sum(member.troubles.failures.total() for member in crowd.members)
        return (
            f"everybody did what they should: {written} records written, {read} read, {skipped} deleted before;"
            f" {keyed} batches for keys; {deletions} deletions of records; {sips} sipped by slow readers;"
            f" {self._brokers.kills} brokers killed; {failures} requests failed"
        )


def _left(look: Callable[[], list[str]], allowed: int) -> list[str]:
    """What there is too much of when brokers had time to close it."""
    try:
        wait_for(lambda: len(look()) <= allowed, "all is closed", 20)
    except AssertionError:
        return look()
    return []
