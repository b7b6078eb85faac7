"""A broker of many partitions: how it comes back, and what it does not load for it."""

from pathlib import Path

from headrace.core.records.columns import decode_batches, encode_batch, record_columns
from tests.support.cluster import Cluster, Program, http, running_cluster
from tests.support.world import BATCH

PARTITIONS = 150
SOME = (0, 99, 149)


def _produce(cluster: Cluster, partition: int) -> None:
    body = b"".join(bytes(buffer) for buffer in encode_batch(record_columns([b"%d" % partition], timestamps_ms=1)))
    url = f"{cluster.records_url('many', partition)}?acks=all"
    assert http("POST", url, body, {"Content-Type": BATCH}).status == 200


def _fetch(cluster: Cluster, partition: int) -> list[bytes | None]:
    answer = http("GET", f"{cluster.records_url('many', partition)}?offset=0", headers={"Accept": BATCH})
    return [record.value for batch in decode_batches(answer.body) for _, record in batch.rows()]


def _libraries(broker: Program) -> str:
    return Path(f"/proc/{broker.pid}/maps").read_text()


def test_should_come_back_with_every_partition_and_one_write_for_each_set(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.create_topic("many", partitions=PARTITIONS)
        for partition in SOME:
            _produce(cluster, partition)
        assert cluster.broker().stop() == 0
        broker = cluster.start_broker()
        cluster.wait_led("many", PARTITIONS)
        assert [_fetch(cluster, partition) for partition in SOME] == [[b"0"], [b"99"], [b"149"]]
        metrics = http("GET", f"{cluster.url()}/metrics").body.decode()
        assert f"headrace_broker_partitions_led {PARTITIONS}.0" in metrics
        # A set for a hundred partitions; now and then the operator was faster, and a set is written again.
        assert 2 <= broker.log.count(": wrote many-") < 8
        # What takes memory is loaded by whoever asks for records as JSON, and not before.
        assert "pyarrow" not in _libraries(broker)
        json = http("GET", f"{cluster.records_url('many', 0)}?offset=0", headers={"Accept": "application/json"})
        assert json.status == 200
        assert "pyarrow" in _libraries(broker)
