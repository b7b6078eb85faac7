"""One run of one scenario: a cluster of its own, clients at work, faults, then calm, and the verdict.

    start everything ──> clients work ──> the scenario's faults ──> all is healed and started ──> writers stop
      ──> readers reach the end ──> the whole log is read ──> brokers stop ──> disks are compared ──> judged

A scenario is a function of a `Play`. Whatever it asks for must happen within a deadline, or the run has failed.
"""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from headrace.core.errors import HeadraceError
from tests.faults.async_clients import AsyncSdkReader, AsyncSdkWriter
from tests.faults.clients import Client, RawReader, RawWriter, Reader, SdkReader, SdkWriter, Whole
from tests.faults.disks import batches_below
from tests.faults.fleet import API, OPERATOR, Fleet, broker_name
from tests.faults.history import History, Outcome, Row
from tests.faults.journal import Journal
from tests.faults.judge import Report, judge
from tests.faults.unruly_api import UnrulyApi, let_pass, unruly
from tests.support.hardy_clients import join_all
from tests.support.patience import patient
from tests.support.waiting import wait_for

_T = TypeVar("_T")
TOPIC: Final = "ledger"
_PROGRESS_S: Final = 120
_CALM_S: Final = 120
_JOIN_S: Final = 150
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Setting:
    """What a scenario wants to be there before it begins."""

    brokers: int = 3
    partitions: int = 2
    replicas: int = 3
    min_insync_replicas: int = 2
    topic: dict[str, Any] = field(default_factory=dict)
    """More of the topic's spec."""
    operators: tuple[str, ...] = (OPERATOR,)
    broker_options: tuple[str, ...] = ()
    writer_options: dict[str, Any] = field(default_factory=dict)
    """Of the SDK's producer."""
    async_clients: bool = False
    """Those of the SDK for event loops, instead of those for threads."""
    faulty_disks: bool = False
    unruly_api: bool = False
    """All but the harness reach the API server through `Play.api`."""
    clients: bool = True
    compares_disks: bool = True


@dataclass(slots=True)
class Play:
    fleet: Fleet
    setting: Setting
    journal: Journal
    random: random.Random
    rounds: int
    """How often a scenario repeats what it does: once or a few times where time is short."""
    clients: list[Client] = field(default_factory=list)
    api: UnrulyApi | None = None
    uid: str = ""
    wrong: list[str] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)
    """Where logs may begin, where records are deleted on purpose."""
    notes: list[str] = field(default_factory=list)
    """For people: what was measured."""
    at_end: list[Callable[[dict[int, tuple[Row, ...]]], None]] = field(default_factory=list)
    """What else is judged by the whole log, while brokers still serve."""

    @property
    def brokers(self) -> list[int]:
        return list(range(self.setting.brokers))

    # -- what scenarios ask ------------------------------------------------------------------------------------------

    def leader(self, partition: int = 0) -> int:
        """Of the partition, once somebody leads it."""
        return wait_for(lambda: _as_tuple(self.fleet.leader(TOPIC, partition)), "somebody leads", _PROGRESS_S)[0]

    def steady_leader(self, topic: str = TOPIC) -> int:
        """Of the first partition, once that is the one that leadership returns to: nobody moves it any more."""

        def steady() -> tuple[int] | None:
            preferred = int(self.fleet.partitions(topic)[0]["replicas"][0])
            return (preferred,) if self.fleet.leader(topic) == preferred else None

        return wait_for(steady, f"the preferred replica leads {topic}", _PROGRESS_S)[0]

    def wait_progress(self, records: int = 20, timeout_s: float = _PROGRESS_S) -> None:
        """Until each partition has had so many records acknowledged from now on."""
        before = dict(self.journal.acknowledged)
        wait_for(
            lambda: all(
                self.journal.acknowledged[partition] >= before.get(partition, 0) + records
                for partition in range(self.setting.partitions)
            ),
            f"{records} records acknowledged in each partition (failures: {dict(self.journal.failures)})",
            timeout_s,
        )

    def wait_read(self, timeout_s: float = _PROGRESS_S) -> None:
        """Until every reader has read what is acknowledged by now."""
        ends: Counter[int] = Counter()
        for write in tuple(self.journal.writes):
            if write.outcome is Outcome.ACKNOWLEDGED:
                ends[write.partition] = max(ends[write.partition], write.offset + 1)
        for reader in (client for client in self.clients if isinstance(client, Reader)):
            wanted = {p: ends[p] for p in reader.position} if isinstance(reader, RawReader) else dict(ends)
            wait_for(partial(reader.has_read, wanted), f"{reader.name} reads to {wanted}", timeout_s)

    def wait_in_sync(self, timeout_s: float = _CALM_S) -> None:
        self.fleet.wait_in_sync(TOPIC, timeout_s)

    def wait_other_leader(self, old: int, timeout_s: float = _PROGRESS_S) -> int:
        """Until another than `old` leads the first partition."""

        def other() -> tuple[int] | None:
            leader = self.fleet.leader(TOPIC)
            return None if leader is None or leader == old else (leader,)

        return wait_for(other, f"another than broker {old} leads", timeout_s)[0]

    def wait_out_of_sync(self, broker: int, timeout_s: float = _PROGRESS_S) -> None:
        """Until the broker is not in the ISR of the first partition."""
        wait_for(lambda: broker not in self.fleet.isr(TOPIC), f"broker {broker} leaves the ISR", timeout_s)

    def judge_more(self, journal: Journal, clients: list[Client], *, trimmed: bool = False) -> Whole:
        """Of another topic with one partition: stop its clients, read it whole, and judge it.

        `trimmed`: it may begin where it says to begin.
        """
        self.wrong += [f"{name} hangs" for name in join_all(clients, patient(_JOIN_S))]
        reader = RawReader("last", journal, self.fleet.servers, 0)
        whole = wait_for(_tried(reader.read_all), f"all of {journal.topic} can be read", _CALM_S)
        history = History(
            writes=journal.writes,
            polls=journal.polls,
            looks=journal.looks,
            final={0: whole.rows},
            idempotent=frozenset(journal.idempotent),
            starts={0: whole.start if trimmed else 0},
        )
        report = judge(history)
        self.wrong += [*journal.wrong, *(f"{journal.topic}: {finding}" for finding in report.findings[:_SHOWN])]
        self.notes.append(f"{journal.topic}: {report.acknowledged} acknowledged, {report.read} read")
        return whole

    def hold(self, seconds: float) -> None:
        """A fault lasts so long: it is time that is the fault."""
        time.sleep(seconds)

    @contextmanager
    def cut_off(self, one: str, others: list[str]) -> Iterator[None]:
        """In both directions."""
        self.fleet.network.cut_both(one, others)
        try:
            yield
        finally:
            for other in others:
                self.fleet.network.heal(one, other)
                self.fleet.network.heal(other, one)

    def expect(self, holds: bool, what: str) -> None:
        """A promise of this scenario alone."""
        if not holds:
            self.wrong.append(what)

    # -- the parts of a run ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        setting = self.setting
        self.fleet.broker_options = setting.broker_options
        for broker in self.brokers if setting.faulty_disks else ():
            self.fleet.give_faulty_disk(broker)
        self.fleet.start(setting.brokers, operators=setting.operators)
        self.uid = self.fleet.create_topic(
            TOPIC,
            partitions=setting.partitions,
            replicas=setting.replicas,
            minInsyncReplicas=setting.min_insync_replicas,
            **setting.topic,
        )
        self.fleet.wait_led(TOPIC, setting.partitions)
        self.wait_in_sync()
        if setting.clients:
            self._start_clients()
            self.wait_progress()

    def _start_clients(self) -> None:
        journal, servers = self.journal, self.fleet.servers
        writer, reader = (AsyncSdkWriter, AsyncSdkReader) if self.setting.async_clients else (SdkWriter, SdkReader)
        self.clients.append(writer("sdk", journal, servers, **self.setting.writer_options))
        self.clients.append(reader("sdk-reader", journal, servers))
        for partition in range(self.setting.partitions):
            self.clients.append(RawWriter(f"raw-{partition}", journal, servers, partition))
            self.clients.append(RawReader(f"raw-reader-{partition}", journal, servers, partition))
        for client in self.clients:
            client.start()

    def heal(self) -> None:
        """Nothing is cut, paused or dead any more."""
        fleet = self.fleet
        fleet.network.heal_all()
        if self.api is not None:
            self.api.rule = let_pass
        for name, program in fleet.programs.items():
            if program.is_running:
                fleet.resume(name)
        if not fleet.is_running(API):
            fleet.start_api()
        for name in self.setting.operators:
            if not fleet.is_running(name):
                fleet.start_operator(name)
        for broker in fleet.brokers:
            if not fleet.is_running(broker_name(broker)):
                fleet.start_broker(broker, wait=False)

    def end(self) -> Report:
        """Calm, and the verdict."""
        self.heal()
        for broker in self.fleet.brokers:
            self.fleet.wait_ready(broker)
        self.fleet.wait_led(TOPIC, self.setting.partitions, _CALM_S)
        if self.setting.clients:
            self.wait_progress()
        self._stop_writers()
        self.wait_in_sync()
        final, ends = self._read_all()
        ends_reached = self._stop_readers(ends)
        for judge_more in self.at_end:
            judge_more(final)
        replicas = self._compare(ends) if self.setting.compares_disks else {}
        journal = self.journal
        history = History(
            writes=journal.writes,
            polls=journal.polls,
            looks=journal.looks,
            final=final,
            replicas=replicas,
            faults=journal.faults,
            idempotent=frozenset(journal.idempotent),
            starts=self.starts,
            ends_reached=ends_reached,
        )
        return judge(history)

    def _stop_writers(self) -> None:
        writers: list[Client] = [client for client in self.clients if not isinstance(client, Reader)]
        self.wrong += [f"{name} hangs" for name in join_all(writers, patient(_JOIN_S))]

    def _read_all(self) -> tuple[dict[int, tuple[Row, ...]], dict[int, int]]:
        final: dict[int, tuple[Row, ...]] = {}
        ends: dict[int, int] = {}
        for partition in range(self.setting.partitions):
            reader = RawReader("last", self.journal, self.fleet.servers, partition)
            whole = wait_for(_tried(reader.read_all), "all can be read", _CALM_S)
            final[partition], ends[partition] = whole.rows, whole.end
        return final, ends

    def _stop_readers(self, ends: dict[int, int]) -> dict[str, tuple[int, ...]]:
        """Once each has read all -> what they then say to have read."""
        reached: dict[str, tuple[int, ...]] = {}
        for reader in (client for client in self.clients if isinstance(client, Reader)):
            wanted = {p: ends[p] for p in reader.position} if isinstance(reader, RawReader) else ends
            try:
                wait_for(partial(reader.has_read, wanted), f"{reader.name} reads to {wanted}", _CALM_S)
                reached[reader.name] = tuple(wanted)
            except AssertionError as error:
                self.wrong.append(f"{error}; it stands at {reader.position}")
            reader.stop()
        return reached

    def _compare(self, ends: dict[int, int]) -> dict[int, dict[str, dict[int, bytes]]]:
        """What lies on the disks of all replicas, which are in sync."""
        held = self.fleet.partitions(TOPIC)
        for broker in self.fleet.brokers:
            self.fleet.kill(broker_name(broker), silently=True)
        found: dict[int, dict[str, dict[int, bytes]]] = {}
        for partition, end in ends.items():
            logs = {
                broker_name(broker): batches_below(self.fleet.data(broker), self.uid, partition, end)
                for broker in held[partition]["replicas"]
            }
            self.wrong += [
                f"{name} holds nothing of partition {partition}" for name, log in logs.items() if log is None
            ]
            found[partition] = {name: log for name, log in logs.items() if log is not None}
        return found


def play(setting: Setting, act: Callable[[Play], None], seed: int, rounds: int) -> tuple[Report | None, Play, str]:
    """The verdict, the run, and why the run could not be finished (empty where it could)."""
    with tempfile.TemporaryDirectory(prefix="headrace-faults-") as home, ExitStack() as between:
        fleet = Fleet(Path(home))
        run = Play(fleet, setting, Journal(TOPIC, setting.partitions), random.Random(seed), rounds)
        try:
            if setting.unruly_api:
                run.api = between.enter_context(unruly(fleet.api_url))
                fleet.api_port = run.api.port
            run.begin()
            act(run)
            return run.end(), run, ""
        except (AssertionError, HeadraceError, OSError) as error:
            return None, run, f"{type(error).__name__}: {error}\n{_logs(fleet)}"
        finally:
            for client in run.clients:
                client.stop()
            fleet.close()


def _logs(fleet: Fleet) -> str:
    """The end of each."""
    return "\n".join(f"--- {name}\n{fleet.log(name)[-1500:]}" for name in fleet.programs)


def _tried(ask: Callable[[], _T]) -> Callable[[], _T | None]:
    """None where it cannot be answered yet."""

    def tried() -> _T | None:
        try:
            return ask()
        except HeadraceError:
            return None

    return tried


def _as_tuple(value: int | None) -> tuple[int] | None:
    return None if value is None else (value,)
