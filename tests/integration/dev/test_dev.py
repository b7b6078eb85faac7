"""`headrace dev` on real processes: what runs, what comes back after a kill -9, what Pods and scaling do."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.dev.supervisor.layout import LOOPBACK, PORTS_TAKEN, free_port_run
from headrace.http2.blocking_transport import BlockingTransport
from tests.support.dev import Dev, dev_home, is_alive, kill
from tests.support.patience import patient
from tests.support.waiting import wait_for

TOPIC = "orders"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """Two brokers and a topic; every test leaves it as it found it."""
    with dev_home(tmp_path_factory.mktemp("dev")) as dev:
        banner = dev.start_with_topic(TOPIC, brokers=2)
        assert f"export KUBECONFIG={dev.home}/dev/kubeconfig" in banner
        yield dev


def kubectl_if_ok(dev: Dev, *arguments: str) -> str | None:
    try:
        return dev.kubectl(*arguments)
    except subprocess.CalledProcessError:
        return None


def fork_server_if_any(dev: Dev) -> int | None:
    try:
        return dev.fork_server
    except LookupError:
        return None


def all_running(dev: Dev, brokers: int) -> bool:
    pids = dev.broker_pids()
    return len(pids) == brokers and len(dev.all_pids()) == brokers + 3


def test_should_describe_what_runs_as_the_contract_says(running: Dev) -> None:
    printed = json.loads(running.headrace("dev", "status", "-o", "json").stdout)
    assert printed == running.status()
    assert set(printed) == {"kubeconfig", "api", "operator", "brokers"}
    assert [set(broker) for broker in printed["brokers"]] == [{"id", "pid", "url", "data"}] * 2
    assert running.headrace("dev", "kubeconfig").stdout == f"{printed['kubeconfig']}\n"
    text = running.headrace("dev", "status").stdout
    assert all(str(pid) in text for pid in running.all_pids()[1:])


def test_should_keep_what_it_writes_to_its_user(running: Dev) -> None:
    data = running.home / "dev"
    readable = [
        f"{path}: {path.stat().st_mode & 0o7777:o}"
        for path in (data, *data.rglob("*"), *running.home.glob("*.json"), *running.home.glob("*.lock"))
        if not path.is_symlink() and path.stat().st_mode & 0o077
    ]
    assert readable == []
    assert (data / "kubeconfig").stat().st_mode & 0o777 == 0o600


def test_should_refuse_a_second_one_in_the_same_home(running: Dev) -> None:
    answer = running.headrace("dev", "--detach", "--port", "0")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert f"already runs with this home ({running.home}), as process {running.supervisor}" in answer.stderr


@pytest.mark.parametrize("victim", ["api", "operator", "broker"])
def test_should_start_a_process_again_and_say_so_when_it_is_killed(running: Dev, victim: str) -> None:
    state = running.status()
    pid = state["brokers"][1]["pid"] if victim == "broker" else state[victim]["pid"]
    kill(pid)
    wait_for(lambda: pid not in running.all_pids() and all_running(running, 2), f"another {victim}")
    wait_for(lambda: running.log().count(f"(process {pid}) was killed by SIGKILL: starting it again") == 1, "its log")
    wait_for(lambda: "is ready again" in running.log().partition(f"(process {pid})")[2], "ready again")
    assert [b["url"] for b in running.status()["brokers"]] == [b["url"] for b in state["brokers"]]


def test_should_keep_all_and_fork_again_when_the_fork_server_is_killed(running: Dev) -> None:
    wait_for(lambda: all_running(running, 2), "all of what other tests killed")
    server, others, said = running.fork_server, running.all_pids(), len(running.log())
    kill(server)
    wait_for(lambda: "the fork server died: starting it again" in running.log()[said:], "its log")
    wait_for(lambda: fork_server_if_any(running) not in (None, server), "another one")
    assert running.all_pids() == others
    pid = running.broker_pids()[1]
    assert pid is not None
    kill(pid)
    wait_for(lambda: "broker 1 is ready again" in running.log()[said:], "its next life")
    assert "executed" not in running.log()


def test_should_say_in_its_pod_how_a_broker_died_and_that_it_runs_again(running: Dev) -> None:
    pid, state = running.broker_pids()[0], "{.status.containerStatuses[0]"
    restarts = int(running.kubectl("get", "pod", "headrace-0", "-o", f"jsonpath={state}.restartCount}}"))
    assert pid is not None
    kill(pid)
    code = f"jsonpath={state}.lastState.terminated.exitCode}} {state}.restartCount}} {state}.ready}}"
    wait_for(
        lambda: running.kubectl("get", "pod", "headrace-0", "-o", code) == f"137 {restarts + 1} true", "its new life"
    )


def test_should_show_a_stateful_set_and_a_pod_for_each_broker(running: Dev) -> None:
    # What was killed just now is shown as soon as it is ready again.
    def pods() -> list[list[str]]:
        return [line.split()[:3] for line in running.kubectl("get", "pods", "--no-headers").splitlines()]

    def stateful_set() -> list[str]:
        return running.kubectl("get", "sts", "headrace", "--no-headers").split()[:2]

    wait_for(lambda: pods() == [[f"headrace-{n}", "1/1", "Running"] for n in range(2)], "both Pods run")
    wait_for(lambda: stateful_set() == ["headrace", "2/2"], "both are ready")


def test_should_show_a_broker_s_log_and_lead_to_the_brokers_by_their_service(running: Dev) -> None:
    assert running.kubectl("logs", "headrace-1", "--tail", "1").count("\n") == 1
    assert "broker 1 is ready" in running.kubectl("logs", "headrace-1")
    running.kubectl("delete", "service", "headrace-bootstrap")
    place = "/api/v1/namespaces/default/services/headrace-bootstrap:http/proxy/v1/cluster"

    def led() -> bool:
        return '"cluster": "headrace"' in (kubectl_if_ok(running, "get", "--raw", place) or "")

    wait_for(led, "another Service, and a broker behind it")


def test_should_kill_the_broker_and_bring_it_back_when_its_pod_is_deleted(running: Dev) -> None:
    before = running.broker_pids()
    uid = running.kubectl("get", "pod", "headrace-1", "-o", "jsonpath={.metadata.uid}")
    running.kubectl("delete", "pod", "headrace-1")
    wait_for(lambda: running.broker_pids()[1] not in (None, before[1]), "another process")
    assert running.broker_pids()[0] == before[0]
    running.kubectl("wait", "--for=condition=Ready", "pod/headrace-1", f"--timeout={patient(100):.0f}s")
    assert running.kubectl("get", "pod", "headrace-1", "-o", "jsonpath={.metadata.uid}") != uid
    assert "killing broker 1: Pod headrace-1 was deleted" in running.log()


def test_should_restart_the_brokers_one_after_the_other_on_a_rolling_restart(running: Dev) -> None:
    before, said = running.broker_pids(), len(running.log())
    running.kubectl("rollout", "restart", "sts/headrace")
    running.kubectl("rollout", "status", "sts/headrace", f"--timeout={patient(100):.0f}s")
    after = running.broker_pids()
    assert all(pid is not None and pid != before[number] for number, pid in after.items())
    log = running.log()[said:]
    steps = re.findall(
        r"restarting broker \d|broker \d (?=\(process \d+\) ended with exit code 0)|broker \d is ready", log
    )
    of_each = [[f"restarting broker {n}", f"broker {n} ", f"broker {n} is ready"] for n in (1, 0)]
    assert steps == of_each[0] + of_each[1]


def test_should_add_and_remove_brokers_when_the_stateful_set_is_scaled(running: Dev) -> None:
    running.kubectl("scale", "sts", "headrace", "--replicas", "3")
    wait_for(lambda: all_running(running, 3), "a third broker")
    running.kubectl("rollout", "status", "sts/headrace", f"--timeout={patient(100):.0f}s")
    added = running.broker_pids()[2]
    assert added is not None
    running.kubectl("scale", "sts", "headrace", "--replicas", "2")
    wait_for(lambda: all_running(running, 2), "two brokers again")
    wait_for(lambda: not is_alive(added), "its process has ended")
    wait_for(lambda: "headrace-2" not in running.kubectl("get", "pods"), "its Pod is gone")


@pytest.mark.timeout(300)
def test_should_say_that_no_broker_is_left_and_go_on_when_there_are_some_again(tmp_path: Path) -> None:
    with dev_home(tmp_path / "home") as dev, BlockingTransport() as transport:
        dev.start_with_topic(TOPIC)
        assert wait_for(lambda: produce(dev, transport, "before"), "the first record") == 0
        assert dev.headrace("consume", TOPIC, "--group", "billing", "-o", "value").stdout == "before\n"
        dev.kubectl("scale", "sts", "headrace", "--replicas", "0")
        wait_for(lambda: not dev.broker_pids(), "no broker is left")
        said = "`headrace dev` runs without a broker: `kubectl scale statefulset headrace --replicas 3` starts three"
        for command in (
            "cluster status",
            f"produce {TOPIC}",
            f"consume {TOPIC}",
            f"consume {TOPIC} --group billing",
            "group reset billing --to earliest --yes",
        ):
            answer = dev.headrace(*command.split())
            assert (answer.exit_code, answer.stdout, len(answer.stderr.splitlines())) == (1, "", 1), command
            assert answer.stderr.startswith(f"headrace: {said}"), command
        described = dev.headrace("group", "describe", "billing")
        assert (described.exit_code, said in described.stderr) == (0, True), described.stderr
        wait_for(lambda: "no live leader" in dev.headrace("topic", "describe", TOPIC).stdout, "nobody leads")
        listed = dev.headrace("topic", "list").stdout.splitlines()[-1].split()
        assert (listed[0], listed[3], listed[5]) == (TOPIC, "0/1", "False")
        dev.kubectl("scale", "sts", "headrace", "--replicas", "3")
        wait_for(lambda: all_running(dev, 3), "three brokers")
        wait_for(lambda: dev.headrace("cluster", "status").exit_code == 0, "they answer")
        assert wait_for(lambda: produce(dev, transport, "after"), "records are taken again") == 1
        assert dev.headrace("consume", TOPIC, "--group", "billing", "-o", "value").stdout == "after\n"


def test_should_keep_topics_and_records_over_a_stop_and_over_a_kill_of_all_of_it(tmp_path: Path) -> None:
    with dev_home(tmp_path / "home") as dev, BlockingTransport() as transport:
        dev.start_with_topic(TOPIC)
        assert wait_for(lambda: produce(dev, transport, "first"), "the first record") == 0
        dev.stop()
        assert dev.headrace("dev", "status").exit_code == 1

        dev.start_with_topic(TOPIC)
        assert f"topic/{TOPIC} created" in dev.log()
        assert f"topic/{TOPIC} configured" in dev.log()
        assert wait_for(lambda: produce(dev, transport, "second"), "the second record") == 1
        pids = dev.all_pids()
        kill(dev.successor, dev.supervisor)
        wait_for(lambda: not any(is_alive(pid) for pid in pids), "its children die with it")
        stale = dev.headrace("dev", "status")
        assert "headrace dev was killed" in stale.stderr
        assert "bring it back, with all its data, with: headrace dev --detach" in stale.stderr

        dev.start()
        wait_for(lambda: values(dev, transport) == ["first", "second"], "both records")
        pids = dev.all_pids()
        dev.stop()
        wait_for(lambda: not any(is_alive(pid) for pid in pids), "nothing is left")
        assert dev.headrace("dev", "stop").stdout == "headrace dev is not running\n"


def test_should_stop_what_is_just_coming_back(tmp_path: Path) -> None:
    with dev_home(tmp_path / "home") as dev:
        dev.start("--brokers", "1")
        successor = dev.successor
        kill(dev.supervisor)
        assert dev.headrace("dev", "stop").stdout == "headrace dev has stopped\n"
        wait_for(lambda: not is_alive(successor), "nothing is left")
        assert dev.headrace("dev", "status").exit_code == 1


def test_should_stop_everything_and_exit_130_on_ctrl_c(tmp_path: Path) -> None:
    with dev_home(tmp_path / "home") as dev:
        command = [str(Path(sys.executable).with_name("headrace")), "dev", "--port", "0", "--brokers", "1"]
        environment = {**os.environ, "HEADRACE_HOME": str(dev.home)}
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline().startswith("Headrace is ready (1 broker); Ctrl-C stops it")
            pids = dev.all_pids()
            process.send_signal(signal.SIGINT)
            assert process.wait(patient(60)) == 130
        assert not any(is_alive(pid) for pid in pids)


def test_should_name_the_port_and_the_remedy_when_another_program_has_it(tmp_path: Path) -> None:
    first = free_port_run(PORTS_TAKEN, random.Random())
    with dev_home(tmp_path / "home") as dev, socket.create_server((LOOPBACK, first)):
        answer = dev.headrace("dev", "--detach", "--port", str(first))
        assert answer.exit_code == 1
        assert f"port {first}, which the Kubernetes API needs, is in use by another program" in answer.stderr
        assert "--port" in answer.stderr


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("{apiVersion: v1, kind: Secret, metadata: {name: a}}", "document 1: kind Secret of apiVersion v1 is none"),
        (
            "{apiVersion: headrace.io/v1alpha1, kind: Topic, metadata: {name: a}, spec: {partitions: 0}}",
            "topic/a was refused: .*spec.partitions: Invalid value: 0",
        ),
    ],
)
def test_should_say_what_is_wrong_with_a_manifest_and_leave_nothing_running(
    tmp_path: Path, manifest: str, message: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(manifest)
    with dev_home(tmp_path / "home") as dev:
        answer = dev.headrace("dev", "--detach", "--port", "0", "--brokers", "1", "-f", str(path))
        assert answer.exit_code == 1
        assert re.search(message, answer.stderr)
        assert dev.headrace("dev", "status").exit_code == 1


def records_url(dev: Dev) -> str:
    return f"{dev.status()['brokers'][0]['url']}/v1/namespaces/default/topics/{TOPIC}/partitions/0/records"


def produce(dev: Dev, transport: BlockingTransport, value: str) -> int | None:
    """The record's offset; None where the partition cannot take it yet."""
    body = json.dumps({"records": [{"value": value}]}).encode()
    headers = {"content-type": "application/json"}
    answer = transport.request("POST", records_url(dev), headers=headers, body=body)
    return int(json.loads(answer.body)["baseOffset"]) if answer.status == 200 else None


def values(dev: Dev, transport: BlockingTransport) -> list[str] | None:
    answer = transport.request("GET", f"{records_url(dev)}?offset=earliest")
    return [record["value"] for record in json.loads(answer.body)["records"]] if answer.status == 200 else None
