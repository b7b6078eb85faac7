"""kill -9 in the middle of a produce: nothing that was acknowledged is lost, moved or changed.

Writers of all partitions write without a pause through all of it. Each round kills the processes while every writer is
being served, waits until all are served again, and reads what is new; at the end the whole log is read once more and
judged together with what readers saw on the way.
"""

import json
import random
from pathlib import Path

import pytest

from headrace.dev.supervisor.layout import PORTS_TAKEN, free_port_run
from headrace.http2.blocking_transport import BlockingTransport
from tests.support.dev import Dev, dev_home, is_alive, kill
from tests.support.history import Entry, check
from tests.support.waiting import wait_for
from tests.support.writers import Writer, progress_since_now, read_from, writing

TOPIC = "ledger"
PARTITIONS = 3
BROKERS = 2
RECORDS_BEFORE_A_KILL = 50
ROUNDS = 2


def kill_all(dev: Dev, arguments: list[str]) -> None:
    """Supervisor and successor, API, operator, brokers; then a person starts it again."""
    pids = [dev.successor, *dev.all_pids()]
    kill(*pids)
    wait_for(lambda: not any(is_alive(pid) for pid in pids), "everything is dead")
    dev.start(*arguments)


@pytest.mark.timeout(280)
def test_should_lose_nothing_acknowledged_when_everything_is_killed_in_the_middle_of_a_produce(tmp_path: Path) -> None:
    port = ["--port", str(free_port_run(PORTS_TAKEN, random.Random()))]
    with dev_home(tmp_path / "home") as dev, BlockingTransport() as transport:
        dev.start_with_topic(TOPIC, *port, partitions=PARTITIONS, brokers=BROKERS)
        writers = [Writer(partition, url) for partition, url in leaders(dev, transport).items()]
        seen: list[Entry] = []
        with writing(writers):
            wait_for(progress_since_now(writers, RECORDS_BEFORE_A_KILL), "first acknowledgements")
            for number in range(ROUNDS):
                kill_all(dev, port)
                wait_for(progress_since_now(writers, RECORDS_BEFORE_A_KILL), f"service after kill {number + 1}")
                seen += read_new(writers, seen)
        acknowledged = [entry for writer in writers for entry in writer.acknowledged]
        final = [entry for writer in writers for entry in read_from(writer, 0)]
    assert check(acknowledged, final, seen) == []
    assert len(acknowledged) >= PARTITIONS * RECORDS_BEFORE_A_KILL * (ROUNDS + 1)


def leaders(dev: Dev, transport: BlockingTransport) -> dict[int, str]:
    """Partition -> URL of its records at its leader. One replica each: it never moves."""
    topic = f"/v1/namespaces/default/topics/{TOPIC}"
    answer = transport.request("GET", dev.status()["brokers"][0]["url"] + topic)
    assert answer.status == 200, answer.body
    return {
        partition["partition"]: f"{partition['leader']['url']}{topic}/partitions/{partition['partition']}/records"
        for partition in json.loads(answer.body)["partitions"]
    }


def read_new(writers: list[Writer], seen: list[Entry]) -> list[Entry]:
    ends = {entry.partition: entry.offset + 1 for entry in seen}
    return [entry for writer in writers for entry in read_from(writer, ends.get(writer.partition, 0))]
