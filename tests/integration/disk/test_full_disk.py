"""A broker whose disk is full lives on, keeps what it acknowledged, makes room, and takes records again by itself."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from headrace import Producer
from headrace.core.records.columns import decode_batches, encode_batch, record_columns
from tests.support.cluster import Answer, Cluster, http, running_cluster
from tests.support.patience import patient
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.waiting import wait_for
from tests.support.world import BATCH

TOPIC = "flights"
TOPIC_PATH = f"/apis/headrace.io/v1alpha1/namespaces/default/topics/{TOPIC}"
MIB = 1 << 20
OPTIONS = ("--housekeeping-interval", "300ms")


@dataclass(slots=True)
class Broker:
    """The only one of its cluster, on a disk of 24 MiB."""

    cluster: Cluster
    disk: SmallDisk
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """Values by offset."""
    sent: int = 0

    @property
    def url(self) -> str:
        return self.cluster.records_url(TOPIC)

    def produce(self) -> Answer:
        """One record of a quarter of a MiB, which is like no other."""
        self.sent += 1
        value = self.sent.to_bytes(8) * (MIB // 32)
        body = b"".join(encode_batch(record_columns([value], timestamps_ms=1)))
        answer = http("POST", self.url, body, {"Content-Type": BATCH})
        if answer.status == 200:
            self.acknowledged[answer.json["baseOffset"]] = value
        return answer

    def produce_until_full(self) -> Answer:
        return next(answer for _ in range(200) if (answer := self.produce()).status != 200)

    def read(self, offset: int) -> dict[int, bytes] | None:
        """All from `offset` on; None where retention was faster."""
        found: dict[int, bytes] = {}
        while offset <= max(self.acknowledged):
            answer = http("GET", f"{self.url}?offset={offset}", headers={"Accept": BATCH})
            if answer.status == 416 and answer.json["logStartOffset"] > offset:
                return None
            assert answer.status == 200, answer.body
            for batch in decode_batches(answer.body):
                found |= {position: record.value or b"" for position, record in batch.rows()}
            offset = int(answer.headers["headrace-next-offset"])
        return found

    @property
    def start(self) -> int:
        answer = http("GET", f"{self.url.replace('/records', '/offsets')}?timestamp=earliest")
        offset: int = answer.json["offset"]
        return offset

    def check_that_nothing_is_lost(self) -> None:
        """But for what is retained no longer, which may go on meanwhile."""

        def read() -> tuple[int, dict[int, bytes]] | None:
            start = self.start
            found = self.read(start)
            return None if found is None else (start, found)

        start, found = wait_for(read, "what is there can be read to its end")
        assert found == {offset: value for offset, value in self.acknowledged.items() if offset >= start}

    def log_bytes(self) -> int:
        files = self.disk.path.glob("partitions/*/*.log")
        try:
            return sum(path.stat().st_size for path in files)
        except FileNotFoundError:  # gone since it was listed
            return self.log_bytes()

    def metric(self, name: str) -> float:
        lines = http("GET", f"{self.cluster.url()}/metrics").body.decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"headrace_broker_{name} "))

    def keep(self, **retention: str) -> None:
        self.cluster.kube("PATCH", TOPIC_PATH, {"spec": {"retention": retention}})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """It runs when a test begins, and when it ends."""
    home = tmp_path_factory.mktemp("full-disk")
    with small_disk(home / "broker-0", 24 * MIB) as disk, running_cluster(home, brokers=0) as cluster:
        cluster.broker_prefix = disk.prefix
        cluster.start_broker(0, *OPTIONS)
        cluster.create_topic(TOPIC, segment={"bytes": "1Mi"})
        yield Broker(cluster, disk)


def test_should_live_on_and_lose_nothing_when_the_disk_is_full_to_the_brim(broker: Broker) -> None:
    wait_for((broker.disk.path / "ballast").exists, "the ballast is taken")
    refused = broker.produce_until_full()
    assert (refused.status, refused.json["code"], refused.headers["retry-after"]) == (507, "DiskFull", "1")
    assert "of them in reserve (--disk-reserve), and these records take" in refused.json["detail"]
    assert refused.json["reserveBytes"] == 24 * MIB // 20
    assert broker.disk.free_bytes > MIB, "the reserve is there but for indexes and checkpoints"
    assert (broker.metric("disk_full"), broker.metric("appends_refused_total")) == (1, 1)

    broker.disk.fill("somebody-elses")
    assert broker.disk.free_bytes == 0
    assert broker.produce().status == 507
    broker.check_that_nothing_is_lost()
    broker.cluster.broker().kill()
    broker.cluster.start_broker(0, *OPTIONS)
    broker.cluster.wait_led(TOPIC)
    broker.check_that_nothing_is_lost()

    with Producer(server=broker.cluster.url()) as producer:
        waiting = producer.send(TOPIC, b"worth waiting for")
        assert broker.produce().status == 507
        broker.keep(bytes="4Mi", time="unlimited")
        wait_for(lambda: broker.produce().status == 200, "records are taken again")
        broker.acknowledged[waiting.result(patient(30)).offset] = b"worth waiting for"
    assert broker.start > 0
    wait_for(lambda: broker.metric("disk_full") == 0, "it is full no more")
    broker.check_that_nothing_is_lost()
    wait_for(lambda: broker.log_bytes() <= 6 * MIB, "retention has come to its end")
    wait_for((broker.disk.path / "ballast").exists, "the ballast is taken again")


def test_should_keep_to_its_quota_and_go_on_when_records_are_deleted(broker: Broker) -> None:
    assert broker.cluster.broker().stop() == 0
    broker.cluster.start_broker(0, *OPTIONS, "--disk-quota", "8Mi")
    broker.cluster.wait_led(TOPIC)
    broker.check_that_nothing_is_lost()
    broker.keep(bytes="unlimited", time="unlimited")
    wait_for(lambda: broker.metric('disk_bytes{kind="used"}') > 0, "its files are counted")
    refused = broker.produce_until_full()
    assert (refused.status, refused.json["quotaBytes"]) == (507, 8 * MIB)
    assert 7.5 * MIB < refused.json["usedBytes"] <= 8 * MIB
    assert broker.metric('disk_bytes{kind="quota"}') == 8 * MIB

    deleted = http("DELETE", f"{broker.url}?beforeOffset={max(broker.acknowledged)}")
    assert deleted.status == 200
    wait_for(lambda: broker.produce().status == 200, "there is room")
    broker.check_that_nothing_is_lost()


def test_should_go_on_when_others_take_the_last_of_the_disk_and_give_it_back(broker: Broker) -> None:
    assert http("DELETE", f"{broker.url}?beforeOffset=latest").status == 200
    wait_for(lambda: broker.produce().status == 200, "there is room")
    broker.disk.fill("somebody-elses")
    assert broker.produce().status == 507
    broker.check_that_nothing_is_lost()
    (broker.disk.path / "somebody-elses").unlink()
    wait_for(lambda: broker.produce().status == 200, "records are taken again")
    broker.check_that_nothing_is_lost()
