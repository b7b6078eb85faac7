"""One case, from the start of its client to its end; and rounds of all cases."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import java_client
from bench.peers.cases import Case, Client, Groups, Size
from bench.peers.errors import PeersError
from bench.peers.figures import Measured
from bench.peers.headrace_dev import Headrace
from bench.peers.job import Answer, Job
from bench.peers.kafka import Kafka
from bench.peers.processes import run

_MODULES = {Client.CONFLUENT: "bench.peers.confluent_client", Client.SDK: "bench.peers.headrace_client"}


@dataclass(frozen=True, slots=True)
class Scene:
    """What is measured on the same servers."""

    groups: Groups
    kafka_topics: Mapping[str, Mapping[str, str]]
    headrace_topics: Mapping[str, str]

    def headrace_topics_of(self, rounds: Sequence[int]) -> dict[str, str]:
        """All topics of all rounds with their durability: they are there before the first round begins."""
        return {
            _topic(name, number): durability for number in rounds for name, durability in self.headrace_topics.items()
        }


@dataclass(frozen=True, slots=True)
class Bench:
    """Both servers run all the time: one that has nothing to do costs the other what the report says it does."""

    scene: Scene
    kafka: Kafka
    headrace: Headrace
    classpath: str
    folder: Path
    payloads: Mapping[int, Path]
    """By the size of values."""

    def round(self, number: int, size: Size, say: Callable[[str], None]) -> dict[str, Measured]:
        """Every case once; the order within a group turns around with each round."""
        self.kafka.create_topics({_topic(name, number): settings for name, settings in self.scene.kafka_topics.items()})
        measured = {}
        for group in self.scene.groups:
            for case in group if number % 2 else reversed(group):
                say(f"round {number}: {case.key}")
                measured[case.key] = self.measure(case, number, size.records(case))
        self.kafka.delete_topics([_topic(name, number) for name in self.scene.kafka_topics])
        self.headrace.delete_topics([_topic(name, number) for name in self.scene.headrace_topics])
        return measured

    def measure(self, case: Case, number: int, records: int) -> Measured:
        """What was written before is on the disk when it begins: its writing back is no part of this case."""
        system = self.kafka if case.client.is_of_kafka else self.headrace
        job = Job(
            work=case.work,
            server=system.address,
            topic=_topic(case.topic, number),
            payloads=str(self.payloads[case.value_bytes]),
            records=records,
            settings=case.settings,
        )
        brokers = system.servers
        os.sync()
        for broker in brokers:
            broker.reset_peak()
        before = sum(broker.cpu_s() for broker in brokers)
        finished = run(self._command(case.client, job), dict(os.environ))
        answer = self._parse(case.client, job, finished.output)
        if answer.records < records:
            raise PeersError(f"{case.key}: {answer.records} records were counted, and {records} were asked for")
        return Measured(
            records=answer.records,
            seconds=answer.seconds,
            p50_ms=answer.p50_ms,
            p99_ms=answer.p99_ms,
            client_cpu_s=finished.cpu_s,
            client_peak_bytes=finished.peak_bytes,
            broker_cpu_s=sum(broker.cpu_s() for broker in brokers) - before,
            broker_peak_bytes=max(broker.peak_bytes() for broker in brokers),
        )

    def _command(self, client: Client, job: Job) -> list[str]:
        if client is Client.JAVA:
            return java_client.command(job, self.classpath, self.folder)
        return [sys.executable, "-m", _MODULES[client], job.to_argument()]

    def _parse(self, client: Client, job: Job, output: str) -> Answer:
        return java_client.parse(job.work, output) if client is Client.JAVA else Answer.parse(output)


def _topic(name: str, number: int) -> str:
    return f"{name}-{number}"
