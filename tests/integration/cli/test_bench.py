"""The bench commands against real processes: short runs, read by the patterns that scripts around Kafka's tools use."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.command import Headrace
from tests.support.patience import patient
from tests.support.world import HEADRACE

TOTAL = re.compile(
    r"(\d+)( steady state)? records sent, \d+\.\d{6} records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency,"
    r" \d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
CONSUMED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}), [^,]+, [\d.]+, [\d.]+, (\d+), [\d.]+, 0, \d+, .*")


def totals(output: str) -> list[int]:
    return [int(match[1]) for match in map(TOTAL.fullmatch, output.splitlines()) if match]


def test_should_measure_what_is_produced_consumed_and_passed_on(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic, "--partitions", "2")
    sent = headrace(*f"bench produce {topic} --num-records 3000 --record-size 100 --print-metrics".split())
    assert (sent.returncode, totals(sent.stdout)) == (0, [3000])
    assert re.search(r"producer-metrics:outgoing-byte-total +: 300000\.000", sent.stdout)

    sizes = "--num-records 2500 --record-size 100 --batch-size 100000 --warmup-records 1000"
    columns = headrace(*f"bench produce {topic} --columns {sizes}".split())
    assert totals(columns.stdout) == [2500, 1500]
    assert "1500 steady state records sent" in columns.stdout

    for more in ([], ["--columns"]):
        read = headrace("bench", "consume", topic, "--messages", "5500", *more)
        header, line = read.stdout.splitlines()
        match = CONSUMED.fullmatch(line)
        assert header.startswith("start.time, end.time, data.consumed.in.MB")
        assert match is not None, line
        assert int(match[2]) == 5500

    sizes = "--record-size 20 --record-key-size 3 --num-headers 1 --record-header-size -1"
    latency = headrace(*f"bench latency {topic} --num-records 5 {sizes}".split())
    first, average, percentiles = latency.stdout.splitlines()
    assert re.fullmatch(r"0\t\d+\.\d+", first)
    assert re.fullmatch(r"Avg latency: \d+\.\d{4} ms", average)
    assert re.fullmatch(r"Percentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+", percentiles)


def test_should_take_payloads_from_a_file_or_count(headrace: Headrace, topic: str, tmp_path: Path) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    (tmp_path / "payloads").write_text("tea|coffee|")
    payloads = ["--payload-file", str(tmp_path / "payloads"), "--payload-delimiter", "|"]
    sent = headrace("bench", "produce", topic, "--num-records", "50", *payloads, "--acks", "1")
    assert "Number of messages read: 2" in sent.stdout
    for columns in ([], ["--columns"]):
        headrace(*f"bench produce {topic} --num-records 3 --payload-monotonic".split(), *columns)
    values = headrace("consume", topic, "-o", "value").stdout.split()
    assert set(values[:50]) == {"tea", "coffee"}
    assert values[50:] == ["0", "1", "2"] * 2


def test_should_keep_to_the_rate_that_is_asked_for(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    for columns in ([], ["--columns"]):
        command = f"bench produce {topic} --num-records 100 --record-size 10 --throughput 400"
        rate = re.search(r"([\d.]+) records/sec", headrace(*command.split(), *columns).stdout)
        assert rate is not None
        assert float(rate[1]) <= 440


def test_should_say_so_when_fewer_records_come_than_expected(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    headrace("produce", topic, stdin="one\n")
    forms = "--show-detailed-stats --reporting-interval 60000 --hide-header --print-metrics"
    done = headrace(*f"bench consume {topic} --messages 5 --timeout 5000 {forms}".split())
    assert done.returncode == 0
    warning, line, *metrics = done.stdout.splitlines()
    assert warning.startswith("WARNING: Exiting before consuming the expected number of messages: timeout (5000 ms)")
    assert line.split(", ")[1:5:3] == ["0", "1"]
    assert any("records-consumed-total" in metric for metric in metrics)
    latest = headrace(*f"bench consume {topic} --messages 1 --timeout 100 --from-latest".split())
    assert latest.stdout.splitlines()[-1].split(", ")[4] == "0"


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("produce {topic} --num-records 5", 2, "exactly one of --record-size, --payload-file"),
        ("produce {topic} --num-records 5 --record-size 1 --warmup-records 5", 2, "must be below"),
        ("produce {topic} --num-records 5 --record-size 1 --throughput 0", 2, "-1 for no limit"),
        ("produce {topic} --num-records 5 --payload-file {empty}", 1, "is empty: write one value a line"),
        ("produce {topic} --num-records 5 --record-size 9000000", 1, "maxMessageBytes"),
        ("latency {topic} --num-records 5 --record-size 1 --acks 0", 2, "'0' is not one of"),
    ],
)
def test_should_say_in_a_sentence_what_cannot_be_measured(
    headrace: Headrace, topic: str, tmp_path: Path, line: str, code: int, says: str
) -> None:
    (tmp_path / "empty").touch()
    if code == 1:
        headrace("topic", "create", topic, "--partitions", "1")
    done = headrace("bench", *line.format(topic=topic, empty=tmp_path / "empty").split())
    assert done.returncode == code
    assert says in " ".join(done.stderr.split())
    assert not totals(done.stdout)


def test_should_print_the_figures_so_far_when_it_is_interrupted(
    headrace: Headrace, topic: str, environment: dict[str, str]
) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    command = [HEADRACE, "bench", "latency", topic, "--num-records", "1000000", "--record-size", "10"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        # Flushed line by line, so that people see it grow.
        assert running.stdout.readline().startswith(b"0\t")
        running.send_signal(signal.SIGINT)
        output, errors = running.communicate(timeout=patient(30))
    assert running.returncode == 130
    assert b"Percentiles: 50th = " in output
    assert b"Traceback" not in errors
