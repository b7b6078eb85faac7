"""The commands as a user types them, against real processes."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.cluster import Cluster
from tests.support.command import Headrace
from tests.support.patience import patient
from tests.support.terminal import on_terminal
from tests.support.waiting import wait_for
from tests.support.world import HEADRACE


def test_should_create_list_describe_and_delete_a_topic(headrace: Headrace, topic: str) -> None:
    created = headrace("topic", "create", topic, "--partitions", "3", "--set", "retention.time=2h")
    assert (created.returncode, created.stdout) == (0, f"topic default/{topic} is ready\n")
    assert "there are 2 brokers, so each partition has 2 copies" in created.stderr

    listed = headrace("topic", "list")
    columns, *rows = (line.split() for line in listed.stdout.splitlines())
    assert columns == ["NAME", "PARTITIONS", "REPLICAS", "LEADERS", "IN-SYNC", "READY", "AGE"]
    assert [topic, "3", "2", "3/3", "6/6", "True"] in [row[:6] for row in rows]
    assert headrace("topic", "list", "-A").stdout.startswith("NAMESPACE")
    assert topic in [one["name"] for one in json.loads(headrace("topic", "list", "-o", "json").stdout)]
    assert topic in [one["name"] for one in yaml.safe_load(headrace("topic", "list", "-o", "yaml").stdout)]
    assert topic in headrace("topic", "list", "-o", "name").stdout.splitlines()
    assert f"default/{topic}" in headrace("topic", "list", "-A", "-o", "name").stdout.splitlines()

    def described() -> str:
        return headrace("topic", "describe", topic).stdout

    # Until a follower has opened its log, its lag is not known.
    wait_for(lambda: [line.split()[-1] for line in described().splitlines()[-3:]] == ["0"] * 3, "nobody lags")
    shown = described()
    assert "retention: time 2h, bytes unlimited" in shown
    assert "Ready=True AllPartitionsOnline" in shown
    *_, title, _, _, last = shown.rstrip().splitlines()
    assert title.split() == ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN-SYNC", "LAG"]
    assert (last.split()[0], last.split()[-1]) == ("2", "0")
    document = json.loads(headrace("topic", "describe", topic, "-o", "json").stdout)
    assert document["spec"]["retention"] == {"time": "2h", "bytes": "unlimited"}
    assert document["status"]["leaders"] == "3/3"
    for number, partition in enumerate(document["partitions"]):
        assert (partition["partition"], sorted(partition["replicas"])) == (number, [0, 1])
        assert partition["lag"] == {str(1 - partition["leader"]): 0}
    assert yaml.safe_load(headrace("topic", "describe", topic, "-o", "yaml").stdout) == document

    deleted = headrace("topic", "delete", topic)
    assert (deleted.returncode, deleted.stdout) == (0, f"topic default/{topic} is deleted\n")
    assert topic not in headrace("topic", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["create", "big", "--partitions", "5000"], 1, "should be less than or equal to 1024"),
        (["create", "bad", "--partitions", "1", "--set", "retention.time=7x"], 2, "spec.retention.time"),
        (["create", "my_topic", "--partitions", "1"], 2, "try my-topic"),
        (["describe", "nothing"], 1, "there is no topic nothing in namespace default"),
        (["delete", "nothing"], 1, "there is no topic nothing in namespace default"),
        (["list", "--context", "nowhere"], 1, "nowhere"),
    ],
)
def test_should_say_in_a_sentence_what_is_wrong(headrace: Headrace, arguments: list[str], code: int, says: str) -> None:
    done = headrace("topic", *arguments)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_should_point_to_describe_when_a_topic_exists_already(headrace: Headrace, topic: str) -> None:
    assert headrace("topic", "create", topic, "--partitions", "1").returncode == 0
    again = headrace("topic", "create", topic, "--partitions", "1")
    assert again.returncode == 1
    assert f"exists already: `headrace topic describe {topic} -n default` shows it" in again.stderr


def test_should_name_the_cluster_that_nobody_serves(headrace: Headrace, topic: str) -> None:
    said = (
        f"topic default/{topic} belongs to cluster blue by its spec.cluster, and no broker does; there are brokers of"
    )
    created = headrace("topic", "create", topic, "--partitions", "1", "--set", "cluster=blue")
    assert (created.returncode, said in created.stderr) == (1, True), created.stderr
    described = headrace("topic", "describe", topic)
    assert (described.returncode, said in described.stderr) == (0, True), described.stderr
    for command in (
        f"produce {topic}",
        f"consume {topic}",
        f"consume {topic} no-such-topic --group some",
        f"bench produce {topic} --num-records 10 --record-size 10",
        f"bench produce {topic} --num-records 10 --record-size 10 --columns",
        f"bench consume {topic} --messages 10",
        f"bench latency {topic} --num-records 1 --record-size 1",
        f"group reset some --topic {topic} --to latest --yes",
        f"group reset some --offset {topic}:0=1 --yes",
    ):
        failed = headrace(*command.split())
        assert (failed.returncode, said in failed.stderr) == (1, True), (command, failed.stderr)
    headrace("topic", "delete", topic)


def test_should_create_nothing_that_needs_more_brokers_than_there_are(headrace: Headrace, topic: str) -> None:
    refused = headrace("topic", "create", topic, "--partitions", "1", "--replicas", "3")
    assert refused.returncode == 1
    assert (
        "3 replicas of each partition need as many brokers, and in cluster headrace there are 2 bro" in refused.stderr
    )
    assert "give --replicas 2, or start more with kubectl scale statefulset headrace --replicas 3" in refused.stderr
    assert topic not in headrace("topic", "list", "-o", "name").stdout.split()
    assert headrace("topic", "create", topic, "--partitions", "1").returncode == 0
    again = headrace("topic", "create", topic, "--partitions", "1", "--replicas", "3", "--if-not-exists")
    assert again.returncode == 0, "one that is there is as good"


def test_should_let_scripts_create_and_delete_twice(headrace: Headrace, topic: str) -> None:
    for _ in range(2):
        created = headrace("topic", "create", topic, "--partitions", "1", "--if-not-exists")
        assert (created.returncode, created.stdout) == (0, f"topic default/{topic} is ready\n")
    deleted = headrace("topic", "delete", "no-such-topic", topic, "--if-exists")
    assert deleted.returncode == 0
    assert deleted.stdout == f"topic default/no-such-topic is not there\ntopic default/{topic} is deleted\n"


def test_should_write_lines_and_read_them_in_every_form(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    produced = headrace("produce", topic, stdin="tea\ncoffee\n")
    assert produced.returncode == 0
    assert produced.stdout == ""
    assert f"produced 2 records to {topic}" in produced.stderr

    assert headrace("consume", topic, "-o", "value").stdout == "tea\ncoffee\n"
    first, second = (json.loads(line) for line in headrace("consume", topic).stdout.splitlines())
    assert (first["partition"], first["offset"], first["key"], first["value"]) == (0, 0, None, "tea")
    assert second["offset"] == 1
    title, *rows = headrace("consume", topic, "-o", "table").stdout.splitlines()
    assert title.split() == ["PARTITION", "OFFSET", "TIMESTAMP", "KEY", "VALUE"]
    assert [row.split()[0:2] + row.split()[3:] for row in rows] == [["0", "0", "-", "tea"], ["0", "1", "-", "coffee"]]


def test_should_take_keys_from_json_and_csv_files(headrace: Headrace, topic: str, tmp_path: Path) -> None:
    headrace("topic", "create", topic, "--partitions", "2")
    (tmp_path / "a.jsonl").write_text('{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n')
    (tmp_path / "b.csv").write_text("id,n\nc,3\n")
    for file in ("a.jsonl", "b.csv"):
        assert headrace("produce", topic, str(tmp_path / file), "--key-field", "id").returncode == 0
    records = [json.loads(line) for line in headrace("consume", topic).stdout.splitlines()]
    assert sorted((record["key"], record["value"]) for record in records) == [
        ("a", '{"id": "a", "n": 1}'),
        ("b", '{"id": "b", "n": 2}'),
        ("c", '{"id":"c","n":"3"}'),
    ]


def test_should_copy_records_with_all_that_they_have(headrace: Headrace, topic: str) -> None:
    for name in (topic, f"{topic}-copy"):
        headrace("topic", "create", name, "--partitions", "1", "--set", "retention.time=unlimited")
    lines = [f'{{"key": "k{number}", "value": "v{number}", "timestamp": {number}}}' for number in range(100)]
    lines += [
        '{"key": "k1", "value": null}',
        '{"valueBase64": "/w==", "headers": [{"name": "a", "valueBase64": "/w=="}]}',
    ]
    written = headrace("produce", topic, "--format", "records", stdin="\n".join(lines))
    assert written.returncode == 0, written.stderr
    read = headrace("consume", topic).stdout
    records = [json.loads(line) for line in read.splitlines()]
    assert [(record["key"], record["value"], record["timestamp"]) for record in records[:100]] == [
        (f"k{number}", f"v{number}", number) for number in range(100)
    ]
    assert (records[100]["key"], records[100]["value"]) == ("k1", None)
    assert records[101]["headers"] == [{"name": "a", "valueBase64": "/w=="}]
    assert headrace("produce", f"{topic}-copy", "--format", "records", stdin=read).returncode == 0
    assert headrace("consume", f"{topic}-copy").stdout == read


def test_should_name_the_line_and_keep_what_came_before_it(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic, "--partitions", "1", "--set", "maxMessageBytes=64Ki")
    done = headrace("produce", topic, "--format", "jsonl", stdin='{"n": 1}\n{"n": 2}\n{"n":\n{"n": 4}\n')
    assert done.returncode == 1
    assert "line 3: '{\"n\":' is not JSON" in done.stderr
    assert "(records written: 2 of 2 sent; all before line 3 are: go on from there, with the header" in done.stderr
    large = headrace("produce", topic, stdin=f"small\n{'x' * 100_000}\n")
    assert large.returncode == 1
    assert "line 2: the record takes 1" in large.stderr
    assert headrace("consume", topic, "-o", "value").stdout == '{"n": 1}\n{"n": 2}\nsmall\n'


def test_should_warn_when_no_record_has_the_key_field(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    arguments = ("produce", topic, "--format", "jsonl", "--key-field", "idd")
    refused = headrace(*arguments, stdin='{"idd": 1}\n{"id": 1}\n')
    assert refused.returncode == 1
    assert "line 2: there is no field 'idd' for the key; --allow-missing-key " in refused.stderr
    done = headrace(*arguments, "--allow-missing-key", stdin='{"id": 1}\n')
    assert done.returncode == 0
    assert "no record has a field 'idd': all keys are null" in done.stderr
    assert [json.loads(line)["key"] for line in headrace("consume", topic).stdout.splitlines()] == ["1", None]


def test_should_begin_and_end_where_it_is_told(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    headrace("produce", topic, stdin="".join(f"{number}\n" for number in range(5)))
    for arguments, expected in {
        ("--from", "3"): ["3", "4"],
        ("-m", "2"): ["0", "1"],
        ("--from", "latest"): [],
        ("--from", "2000-01-01"): ["0", "1", "2", "3", "4"],
        ("--from", "1h ago"): ["0", "1", "2", "3", "4"],
        ("--from", "0s ago"): [],
        ("--from", "2100-01-01T00:00:00Z"): [],
        ("--partition", "0", "--from", "1", "-m", "1"): ["1"],
    }.items():
        assert headrace("consume", topic, "-o", "value", *arguments).stdout.split() == expected


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{topic}", "--partition", "7"], "partition 7 of {topic} does not exist: it has 1, numbered from 0"),
        (["{topic}", "--from", "99"], "offset 99"),
    ],
)
def test_should_exit_with_1_when_nothing_can_be_read(
    headrace: Headrace, topic: str, arguments: list[str], says: str
) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    done = headrace("consume", *(argument.format(topic=topic) for argument in arguments))
    assert done.returncode == 1
    assert says.format(topic=topic) in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_should_not_take_an_empty_input_for_a_topic_that_is_not_there(headrace: Headrace) -> None:
    done = headrace("produce", "no-such-topic")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "headrace: there is no topic no-such-topic in namespace default: `headrace topic create"
    )


def test_should_send_many_lines_in_columns_and_keep_their_order(headrace: Headrace, topic: str, tmp_path: Path) -> None:
    headrace("topic", "create", topic, "--partitions", "1", "--set", "maxMessageBytes=64Ki")
    lines = [f"{number:040}" for number in range(25_000)]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    produced = headrace("produce", topic, str(tmp_path / "lines.txt"))
    assert f"produced 25,000 records to {topic}" in produced.stderr
    assert headrace("produce", topic, "-q", stdin="quiet\n").stderr == ""
    assert headrace("consume", topic, "-o", "value").stdout.split() == [*lines, "quiet"]

    large = headrace("produce", topic, stdin="small\n" * 100 + "x" * 100_000 + "\n" + "small\n" * 100)
    assert large.returncode == 1
    assert "line 101: the record takes 1" in large.stderr
    assert "(records written: 100 of 100 sent)" in large.stderr


def test_should_be_quiet_when_its_reader_has_enough(
    headrace: Headrace, topic: str, environment: dict[str, str]
) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    headrace("produce", topic, stdin="".join(f"{number:0100}\n" for number in range(20_000)))
    pipeline = f"set -o pipefail; {HEADRACE} consume {topic} -o value | head -1"
    done = subprocess.run(
        ["bash", "-c", pipeline], env=environment, capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{0:0100}\n"


def test_should_say_what_is_tried_again_and_what_is_not_written_after_ctrl_c(
    shared: Cluster, headrace: Headrace, topic: str, environment: dict[str, str]
) -> None:
    headrace("topic", "create", topic, "--partitions", "2", "--replicas", "1")
    partitions = json.loads(headrace("topic", "describe", topic, "-o", "json").stdout)["partitions"]
    mine = next(str(each["partition"]) for each in partitions if each["leader"] == 1)
    command = [HEADRACE, "produce", topic, "--partition", mine]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("one\n")
        process.stdin.flush()
        wait_for(lambda: "one" in headrace("consume", topic, "-o", "value").stdout, "the first record is written")
        try:
            shared.broker(1).kill()
            process.stdin.write("two\nthree\n")
            process.stdin.flush()
            assert f"records for {topic}/{mine}: " in (said := process.stderr.readline())
            assert said.endswith("; trying again\n")
            process.send_signal(signal.SIGINT)
            said = next(line for line in process.stderr if "trying again" not in line)
            assert said == "headrace: interrupted: waiting for 2 records; Ctrl-C again ends it\n"
            process.send_signal(signal.SIGINT)
            last = process.stderr.read().splitlines()[-1]
        finally:
            shared.start_broker(1)
    assert process.returncode == 130
    assert last == (
        f"headrace: interrupted: 1 record is written to {topic}; 2 more were sent and not acknowledged: they may be"
        " written or not"
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_should_say_how_far_it_came_when_it_is_told_to_end(
    headrace: Headrace, topic: str, environment: dict[str, str], number: signal.Signals, code: int
) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    pipe = subprocess.PIPE
    command = [HEADRACE, "produce", topic]
    with subprocess.Popen(command, env=environment, stdin=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("tea\ncoffee\n")
        process.stdin.flush()
        wait_for(lambda: headrace("consume", topic, "-o", "value").stdout == "tea\ncoffee\n", "both are written")
        process.send_signal(number)
        _, said = process.communicate(timeout=patient(60))
    assert process.returncode == code
    assert said == f"headrace: ended by {number.name}: 2 records are written to {topic}\n"


def test_should_show_progress_on_a_terminal_while_records_go_into_a_file(
    headrace: Headrace, topic: str, environment: dict[str, str], tmp_path: Path
) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    headrace("produce", topic, stdin="tea\ncoffee\n")
    said = on_terminal(f"{HEADRACE} consume {topic} -o value > {tmp_path}/values", environment)
    assert (tmp_path / "values").read_text() == "tea\ncoffee\n"
    assert " records/s " in said
    assert f"consumed 2 records from {topic} in " in said
    piped = on_terminal(f"{HEADRACE} consume {topic} -o value | cat", environment)
    # A notice of trouble may stand there all the same, as on a loaded machine.
    shown = [line for line in piped.splitlines(keepends=True) if not line.startswith("headrace: ")]
    assert "".join(shown) == "tea\r\ncoffee\r\n", "the screen belongs to what reads the pipe"


def test_should_complete_the_names_of_topics_in_bash(
    headrace: Headrace, topic: str, environment: dict[str, str]
) -> None:
    headrace("topic", "create", topic, "--partitions", "1")
    script = f"""PATH={Path(HEADRACE).parent}:$PATH; source <(headrace completion bash)
        for words in "headrace consume {topic}" "headrace topic describe {topic}"; do
            COMP_WORDS=($words); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
            _headrace_completion headrace; echo "${{COMPREPLY[@]}}"
        done"""
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [topic, topic], done.stderr


def test_should_show_the_brokers(headrace: Headrace) -> None:
    def whole() -> str | None:
        """What is shown once nothing is behind any more: another test has killed one of the two."""
        shown = headrace("cluster", "status").stdout
        return shown if shown.rstrip().endswith(", under-replicated: 0, offline: 0") else None

    name, title, *rows, sums = wait_for(whole, "all is in sync").splitlines()
    assert name == "cluster headrace"
    assert title.split() == ["ID", "URL", "ZONE", "STATE", "INCARNATION", "LEADERS", "REPLICAS"]
    assert [row.split()[0] for row in rows] == ["0", "1"]
    assert all("Ready" in row for row in rows)
    assert re.fullmatch(r"partitions: \d+, under-replicated: 0, offline: 0", sums)
    state = json.loads(headrace("cluster", "status", "-o", "json").stdout)
    assert [broker["id"] for broker in state["brokers"]] == [0, 1]
    assert sum(broker["leaders"] for broker in state["brokers"]) == state["partitions"]["total"]


def test_should_prefer_the_server_that_is_given(headrace: Headrace) -> None:
    done = headrace("cluster", "status", "--server", "localhost")
    assert done.returncode == 1
    assert "write it as http://host:9701" in done.stderr


def test_should_warn_at_once_when_produced_records_are_older_than_retention(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic, "--partitions", "1", "--set", "retention.time=7d")
    done = headrace("produce", topic, "--format", "records", stdin='{"value": "a", "timestamp": 1}\n' * 3)
    assert done.returncode == 0
    assert f"records for {topic}: 3 records are older than the topic's retention.time, which is 7d" in done.stderr
    assert "timestamps: beforeMax unlimited, afterMax unlimited" in headrace("topic", "describe", topic).stdout
