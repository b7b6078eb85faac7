"""`headrace group` and `headrace consume --group` as a user types them, against real processes."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace import Producer
from tests.support.cluster import Cluster
from tests.support.command import Headrace
from tests.support.patience import patient
from tests.support.waiting import wait_for
from tests.support.world import CONSUMER_GROUPS, HEADRACE


@pytest.fixture
def group(topic: str) -> str:
    """One of each test's own, as its topic."""
    return topic.replace("topic", "group")


@pytest.fixture
def orders(headrace: Headrace, topic: str) -> str:
    """A topic of two partitions: three records in 0, two in 1."""
    assert headrace("topic", "create", topic, "--partitions", "2").returncode == 0
    headrace("produce", topic, "--partition", "0", stdin="a\nb\nc\n")
    headrace("produce", topic, "--partition", "1", stdin="d\ne\n")
    return topic


def described(headrace: Headrace, group: str) -> dict[str, Any]:
    done = headrace("group", "describe", group, "-o", "json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def offsets(headrace: Headrace, group: str) -> list[int | None]:
    return [each["offset"] for each in described(headrace, group)["partitions"]]


@contextmanager
def member(
    environment: Mapping[str, str], topic: str, group: str, *options: str, stdout: int = subprocess.DEVNULL
) -> Iterator["subprocess.Popen[str]"]:
    """A process that follows, as a member of the group."""
    command = [HEADRACE, "consume", topic, "--group", group, "--follow", "-o", "value", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=dict(environment), stdout=stdout, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_members(headrace: Headrace, group: str, count: int) -> dict[str, Any]:
    def stable() -> dict[str, Any] | None:
        done = headrace("group", "describe", group, "-o", "json")
        document: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"members": []}
        return document if len(document["members"]) == count and document["state"] == "Stable" else None

    return wait_for(stable, f"{group} has {count} members, and each its partitions")


def test_should_go_on_where_the_group_is(headrace: Headrace, orders: str, group: str) -> None:
    first = headrace("consume", orders, "--group", group, "-o", "value", "-m", "2")
    assert (first.returncode, len(first.stdout.split())) == (0, 2)
    rest = headrace("consume", orders, "--group", group, "-o", "value")
    assert sorted(first.stdout.split() + rest.stdout.split()) == ["a", "b", "c", "d", "e"]
    assert headrace("consume", orders, "--group", group, "-o", "value").stdout == ""
    headrace("produce", orders, "--partition", "1", stdin="f\n")
    assert headrace("consume", orders, "--group", group, "-o", "value").stdout == "f\n"
    assert offsets(headrace, group) == [3, 3]


def test_should_begin_where_it_is_told_to_where_the_group_has_no_offset(
    headrace: Headrace, orders: str, group: str
) -> None:
    assert headrace("consume", orders, "--group", group, "--from", "latest").stdout == ""
    headrace("produce", orders, "--partition", "0", stdin="f\n")
    assert headrace("consume", orders, "--group", group, "--from", "earliest", "-o", "value").stdout == "f\n"


def test_should_read_several_topics_and_say_which_record_is_of_which(
    headrace: Headrace, orders: str, group: str
) -> None:
    other = f"{orders}-b"
    headrace("topic", "create", other, "--partitions", "1")
    headrace("produce", other, stdin="x\n")
    for arguments in ((), ("--group", group)):
        read = [json.loads(line) for line in headrace("consume", orders, other, *arguments).stdout.splitlines()]
        assert sorted((each["topic"], each["value"]) for each in read) == sorted(
            [*((orders, value) for value in "abcde"), (other, "x")]
        )
    title, *rows = headrace("consume", orders, other, "-o", "table").stdout.splitlines()
    assert title.split()[:3] == ["TOPIC", "PARTITION", "OFFSET"]
    assert sorted(row.split()[0] for row in rows) == [orders] * 5 + [other]
    assert {each["topic"] for each in described(headrace, group)["partitions"]} == {orders, other}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_should_commit_what_it_printed_and_leave_when_it_is_told_to_stop(
    headrace: Headrace, environment: dict[str, str], orders: str, group: str, number: signal.Signals, code: int
) -> None:
    with member(environment, orders, group, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert sorted(process.stdout.readline() for _ in range(5)) == [f"{value}\n" for value in "abcde"]
        process.send_signal(number)
        said, errors = process.communicate(timeout=patient(60))
    assert (process.returncode, said) == (code, ""), errors
    assert "Traceback" not in errors
    now = described(headrace, group)
    assert (now["state"], now["members"], now["lag"]) == ("Empty", [], 0)
    assert [each["offset"] for each in now["partitions"]] == [3, 2]


def test_should_read_all_topics_of_a_pattern_and_those_that_are_named(
    headrace: Headrace, orders: str, group: str
) -> None:
    for name in (f"{orders}-b", f"{orders}-c", f"x-{orders}"):
        headrace("topic", "create", name, "--partitions", "1")
        headrace("produce", name, stdin=f"{name}\n")
    done = headrace("consume", f"x-{orders}", "--pattern", f"{orders}(-b)?", "--group", group)
    assert done.returncode == 0, done.stderr
    read = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted((each["topic"], each["value"]) for each in read) == sorted(
        [*((orders, value) for value in "abcde"), *((name, name) for name in (f"{orders}-b", f"x-{orders}"))]
    )
    table = headrace("consume", "--pattern", f"{orders}-c", "--group", group, "-o", "table").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["TOPIC", f"{orders}-c"]


def test_should_keep_a_members_partitions_while_it_is_away_where_it_has_a_name(
    headrace: Headrace, environment: dict[str, str], orders: str, group: str
) -> None:
    static = ("--instance-id", "pod-0")
    with member(environment, orders, group, *static) as process:
        wait_for_members(headrace, group, 1)
        wait_for(lambda: offsets(headrace, group) == [3, 2], "it has committed")
        process.send_signal(signal.SIGTERM)
        assert process.wait(patient(60)) == 143
    away = described(headrace, group)
    assert [each["instanceId"] for each in away["members"]] == ["pod-0"]
    headrace("produce", orders, "--partition", "1", stdin="f\n")
    assert headrace("consume", orders, "--group", group, *static, "-o", "value").stdout == "f\n"
    assert described(headrace, group)["groupEpoch"] == away["groupEpoch"], "nothing was shared out anew"


def test_should_leave_when_its_reader_has_enough(
    headrace: Headrace, environment: dict[str, str], orders: str, group: str
) -> None:
    pipeline = f"set -o pipefail; {HEADRACE} consume {orders} --group {group} --follow -o value | head -6"
    with subprocess.Popen(
        ["bash", "-c", pipeline], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for_members(headrace, group, 1)

        def ended() -> bool:
            headrace("produce", orders, "--quiet", stdin="more\n")
            return process.poll() is not None

        wait_for(ended, "nobody reads any more, and it is seen when it writes")
        _, errors = process.communicate(timeout=patient(60))
    assert process.returncode == 0
    assert "come again (-m N reads N and no more)" in errors
    assert (described(headrace, group)["state"], described(headrace, group)["members"]) == ("Empty", [])


@pytest.fixture
def many(headrace: Headrace, topic: str) -> list[str]:
    """Values of a topic's only partition: as JSON lines, more than a pipe holds beside what `head` reads at once."""
    values = [f"{number:0200}" for number in range(1_000)]
    assert headrace("topic", "create", topic, "--partitions", "1").returncode == 0
    headrace("produce", topic, stdin="".join(f"{value}\n" for value in values))
    return values


@pytest.mark.parametrize("reader", ["head -n 3", "{ while read -r line; do echo $line; exit 1; done; }"])
def test_should_read_again_what_its_reader_has_not_read(
    headrace: Headrace, environment: dict[str, str], topic: str, many: list[str], group: str, reader: str
) -> None:
    command = f"set -o pipefail; {HEADRACE} consume {topic} --group {group} -o value | {reader}"
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    read = done.stdout.split()
    assert (done.returncode, read) == (int("exit 1" in reader), many[: len(read)])
    assert " printed last are not committed, and come again" in done.stderr
    again = headrace("consume", topic, "--group", group, "-o", "value").stdout.split()
    assert again == many[-len(again) :]
    assert len(read) + len(again) >= len(many), "nothing is left out"
    assert headrace("consume", topic, "--group", group).stdout == ""


def is_at(headrace: Headrace, group: str, offset: int) -> bool:
    return offsets(headrace, group) == [offset]


def test_should_commit_what_has_left_the_pipe(
    headrace: Headrace, environment: dict[str, str], topic: str, many: list[str], group: str
) -> None:
    with member(environment, topic, group, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        wait_for_members(headrace, group, 1)
        wait_for(lambda: offsets(headrace, group) == [0], "it has committed where it begins, and nothing more")
        for rows in (10, 20):
            size = 10 * (len(many[0]) + 1)
            while size:
                size -= len(os.read(process.stdout.fileno(), size))
            wait_for(partial(is_at, headrace, group, rows), "it has committed what was taken")
        process.send_signal(signal.SIGTERM)
        assert process.wait(patient(60)) == 143
        assert offsets(headrace, group) == [20]
        rest = process.stdout.read().split("\n")[:-1]  # The last one is not whole.
    assert many[20:][: len(rest)] == rest
    assert headrace("consume", topic, "--group", group, "-o", "value").stdout.split() == many[20:]


def test_should_end_when_its_reader_has_taken_all(
    headrace: Headrace, environment: dict[str, str], orders: str, group: str
) -> None:
    command = [HEADRACE, "consume", orders, "--group", group, "-o", "value"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        wait_for_members(headrace, group, 1)
        assert sorted(process.stdout.read().split()) == ["a", "b", "c", "d", "e"]
    assert process.returncode == 0
    assert offsets(headrace, group) == [3, 2]


def test_should_wait_for_the_partitions_of_a_member_that_was_killed(
    shared: Cluster, headrace: Headrace, environment: dict[str, str], orders: str, group: str
) -> None:
    manifest = {"apiVersion": "headrace.io/v1alpha1", "kind": "ConsumerGroup", "metadata": {"name": group}}
    shared.kube("POST", CONSUMER_GROUPS, {**manifest, "spec": {"sessionTimeout": f"{round(patient(6))}s"}})
    with member(environment, orders, group) as killed:
        wait_for_members(headrace, group, 1)
        wait_for(lambda: offsets(headrace, group) == [3, 2], "it has committed")
        killed.kill()
        killed.wait(patient(60))
    # In this process, which has no start to wait for: the member must not be given up before the next one asks.
    with Producer(shared.url()) as producer:
        for partition, value in enumerate("fg"):
            producer.send(orders, value, partition=partition)
    done = headrace("consume", orders, "--group", group, "-o", "value")
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["f", "g"]), done.stderr
    assert re.search(
        rf"group {group}: \S+ \(127.0.0.1\) has .*{orders}/.* and was heard of .* s ago, .* loses them in", done.stderr
    ), done.stderr


def test_should_share_partitions_and_show_who_reads_which(
    headrace: Headrace, environment: dict[str, str], orders: str, group: str
) -> None:
    with member(environment, orders, group), member(environment, orders, group):
        now = wait_for_members(headrace, group, 2)
        members = {each["memberId"]: each["owned"] for each in now["members"]}
        assert sorted(members.values(), key=str) == [[{"topic": orders, "partitions": [each]}] for each in (0, 1)]
        owners = [each["memberId"] for each in now["partitions"]]
        assert set(owners) == set(members)
        wait_for(lambda: offsets(headrace, group) == [3, 2], "both have committed")

        shown = headrace("group", "describe", group).stdout
        assert shown.startswith(f"default/{group}   Stable   2 members   lag 0   coordinator ")
        title, *rows = shown[shown.index("TOPIC ") :].splitlines()
        assert title.split() == ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "MEMBER", "ADDRESS"]
        assert [row.split() for row in rows] == [
            [orders, "0", "3", "3", "0", owners[0], "127.0.0.1"],
            [orders, "1", "2", "2", "0", owners[1], "127.0.0.1"],
        ]
        assert yaml.safe_load(headrace("group", "describe", group, "-o", "yaml").stdout)["name"] == group

        refused = headrace("group", "delete", group, "--yes")
        assert refused.returncode == 1
        assert f"group default/{group} is not empty: stop " in refused.stderr
        assert all(owner in refused.stderr for owner in owners)


def test_should_list_groups_as_kubectl_does(headrace: Headrace, orders: str, group: str) -> None:
    headrace("consume", orders, "--group", group)

    def listed() -> list[str] | None:
        rows = [line.split() for line in headrace("group", "list").stdout.splitlines()]
        assert rows[0] == ["NAME", "TYPE", "STATE", "MEMBERS", "LAG", "TOPICS", "AGE"]
        return next((row[:6] for row in rows if row[0] == group and row[2] == "Empty" and row[4] == "0"), None)

    assert wait_for(listed, "the coordinator has told Kubernetes of it") == [
        group,
        "Consumer",
        "Empty",
        "0",
        "0",
        orders,
    ]
    assert group in headrace("group", "list", "-o", "name").stdout.splitlines()
    assert f"default/{group}" in headrace("group", "list", "-A", "-o", "name").stdout.splitlines()
    assert headrace("group", "list", "-A").stdout.startswith("NAMESPACE")
    (found,) = [each for each in json.loads(headrace("group", "list", "-o", "json").stdout) if each["name"] == group]
    assert (found["state"], found["lag"], found["topics"], found["members"]) == ("Empty", 0, [orders], 0)


def test_should_reset_where_it_is_told_to(shared: Cluster, headrace: Headrace, orders: str, group: str) -> None:
    headrace("consume", orders, "--group", group)
    dry = headrace("group", "reset", group, "--to", "earliest", "--dry-run")
    assert [line.split() for line in dry.stdout.splitlines()] == [
        ["TOPIC", "PARTITION", "FROM", "TO"],
        [orders, "0", "3", "0"],
        [orders, "1", "2", "0"],
    ]
    assert offsets(headrace, group) == [3, 2]
    refused = headrace("group", "reset", group, "--to", "earliest")
    assert (refused.returncode, refused.stderr) == (1, "headrace: nothing was changed: say y, or give --yes\n")
    for arguments, expected in (
        (("--to", "earliest"), [0, 0]),
        (("--to", "latest", "--topic", orders), [3, 2]),
        (("--to", "1h ago"), [0, 0]),
        (("--offset", f"{orders}:0=2"), [2, 0]),
        (("--to", "offsets", "--offset", f"{orders}:1=1"), [2, 1]),
    ):
        done = headrace("group", "reset", group, *arguments, "--yes")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(f"group default/{group} is reset\n")
        assert offsets(headrace, group) == expected, arguments
    resource = shared.kube("GET", f"{CONSUMER_GROUPS}/{group}")
    assert "resetOffsets" not in resource["spec"], "nothing is left that a manifest would be merged with"
    assert resource["status"]["lastReset"]["result"] == "Applied"
    assert sorted(headrace("consume", orders, "--group", group, "-o", "value").stdout.split()) == ["c", "e"]


def test_should_give_a_group_its_offsets_before_its_first_member(headrace: Headrace, orders: str, group: str) -> None:
    assert "has no topics yet: name them with --topic" in headrace("group", "reset", group, "--to", "latest").stderr
    assert headrace("group", "reset", group, "--to", "latest", "--topic", orders, "--yes").returncode == 0
    assert headrace("consume", orders, "--group", group).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--offset", "{topic}:7=0"], "--offset {topic}:7=0: {topic} has 2 partitions, numbered from 0"),
        (["--offset", "{topic}:0=4"], "{topic}/0 has the offsets 0 to 3 (the next record's)"),
        (["--to", "latest", "--topic", "no-such-topic"], "there is no topic no-such-topic in namespace default"),
    ],
)
def test_should_refuse_resets_to_where_nothing_is(
    headrace: Headrace, orders: str, group: str, arguments: list[str], says: str
) -> None:
    done = headrace("group", "reset", group, *(each.format(topic=orders) for each in arguments), "--yes")
    assert done.returncode == 1
    assert says.format(topic=orders) in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_should_not_reset_a_group_whose_offsets_are_a_querys_own(
    shared: Cluster, headrace: Headrace, orders: str, group: str
) -> None:
    resource = {"apiVersion": "headrace.io/v1alpha1", "kind": "ConsumerGroup", "metadata": {"name": group}}
    shared.kube("POST", CONSUMER_GROUPS, {**resource, "spec": {"type": "Spark"}})
    done = headrace("group", "reset", group, "--to", "earliest", "--topic", orders, "--yes")
    assert done.returncode == 1
    assert f"group default/{group} is of type Spark" in done.stderr
    assert "resetOffsets" not in shared.kube("GET", f"{CONSUMER_GROUPS}/{group}")["spec"]
    assert headrace("group", "delete", group, "--yes").returncode == 0


def test_should_wait_with_a_reset_until_the_members_are_gone(
    headrace: Headrace, environment: dict[str, str], orders: str, group: str
) -> None:
    with member(environment, orders, group) as reader:
        wait_for_members(headrace, group, 1)
        wait_for(lambda: offsets(headrace, group) == [3, 2], "it has committed")
        command = [HEADRACE, "group", "reset", group, "--to", "earliest", "--yes"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as reset:
            assert reset.stderr is not None
            assert "it is reset once the group is empty: " in reset.stderr.readline()
            assert f"resetting group {group}: " in reset.stderr.readline()
            reader.send_signal(signal.SIGTERM)
            said, errors = reset.communicate(timeout=patient(90))
    assert (reset.returncode, said.splitlines()[-1]) == (0, f"group default/{group} is reset"), errors
    assert offsets(headrace, group) == [0, 0]


def test_should_say_what_stays_wanted_when_the_waiting_is_interrupted(
    shared: Cluster, headrace: Headrace, environment: dict[str, str], orders: str, group: str
) -> None:
    with member(environment, orders, group):
        wait_for_members(headrace, group, 1)
        command = [HEADRACE, "group", "reset", group, "--to", "earliest", "--yes"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as reset:
            assert reset.stderr is not None
            reset.stderr.readline()
            assert f"resetting group {group}: " in reset.stderr.readline()
            reset.send_signal(signal.SIGINT)
            _, errors = reset.communicate(timeout=patient(60))
        assert reset.returncode == 130
        assert "interrupted: It stays wanted, and is carried out once it can be" in errors
        assert shared.kube("GET", f"{CONSUMER_GROUPS}/{group}")["spec"]["resetOffsets"]["to"] == "Earliest"


def test_should_delete_a_group_and_its_offsets(headrace: Headrace, orders: str, group: str) -> None:
    headrace("consume", orders, "--group", group)
    asked = headrace("group", "delete", group)
    assert (asked.returncode, asked.stderr) == (1, "headrace: nothing was deleted: say y, or give --yes\n")
    deleted = headrace("group", "delete", group, "--yes")
    assert (deleted.returncode, deleted.stdout) == (0, f"group default/{group} is deleted\n"), deleted.stderr
    assert group not in headrace("group", "list", "-o", "name").stdout.split()
    gone = headrace("group", "describe", group)
    assert gone.stderr == (
        f"headrace: there is no group {group} in namespace default: `headrace group list -A` shows all\n"
    )
    assert len(headrace("consume", orders, "--group", group).stdout.splitlines()) == 5, "it begins anew"


def test_should_say_what_one_side_cannot_tell(
    headrace: Headrace, orders: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace("consume", orders, "--group", group)
    described(headrace, group)
    wait_for(lambda: group in headrace("group", "list", "-o", "name").stdout.split(), "Kubernetes knows of it")

    without_brokers = headrace("group", "describe", group, "--server", "http://127.0.0.1:1")
    assert without_brokers.returncode == 0
    assert "brokers do not tell, so members are those that the Kubernetes API saw last" in without_brokers.stderr
    assert "assignor: Uniform" in without_brokers.stdout

    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    without_api = headrace("group", "describe", group)
    assert without_api.returncode == 0
    assert "the Kubernetes API is away, settings and conditions are not known" in without_api.stderr
    assert without_api.stdout.startswith(f"default/{group}   Empty   0 members   lag 0")
    assert "Spec" not in without_api.stdout
    listed = headrace("group", "list")
    assert "this is what brokers say" in listed.stderr
    assert [group, "Consumer", "Empty", "0", "unknown", "unknown", "?"] in [
        line.split() for line in listed.stdout.splitlines()
    ]
    assert headrace("group", "list", "-A").returncode == 1

    neither = headrace("group", "describe", group, "--server", "http://127.0.0.1:1")
    assert neither.returncode == 1
    assert "neither the Kubernetes API nor a broker tells" in neither.stderr


def test_should_name_the_topic_that_is_not_there(headrace: Headrace, group: str) -> None:
    done = headrace("consume", "no-such-topic", "--group", group)
    assert done.returncode == 1
    assert "there is no topic no-such-topic in namespace default" in done.stderr


def test_should_leave_the_topic_of_the_offsets_alone(headrace: Headrace, orders: str, group: str) -> None:
    headrace("consume", orders, "--group", group)
    assert "headrace-offsets" not in headrace("topic", "list", "-o", "name").stdout.split()
    assert "headrace-offsets" in headrace("topic", "list", "--internal", "-o", "name").stdout.split()
    shown = headrace("topic", "describe", "headrace-offsets")
    assert "cleanupPolicy: Compact" in shown.stdout
    refused = headrace("topic", "delete", "headrace-offsets")
    assert refused.returncode == 1
    assert "topic default/headrace-offsets is Headrace's own" in refused.stderr
    made = headrace("topic", "create", "headrace-offsets", "--partitions", "1")
    assert (made.returncode, "choose another" in made.stderr) == (1, True)


def test_should_complete_the_names_of_groups_in_bash(
    headrace: Headrace, orders: str, group: str, environment: dict[str, str]
) -> None:
    headrace("group", "reset", group, "--to", "latest", "--topic", orders, "--yes")
    script = f"""PATH={Path(HEADRACE).parent}:$PATH; source <(headrace completion bash)
        for words in "headrace group describe {group}" "headrace consume {orders} --group {group}"; do
            COMP_WORDS=($words); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
            _headrace_completion headrace; echo "${{COMPREPLY[@]}}"
        done"""
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [group, group], done.stderr
