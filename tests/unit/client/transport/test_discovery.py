"""The argument first, then the environment, then the running dev, else the remedy."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from headrace.client.transport.discovery import NoServerError, Servers, find_servers, running_dev
from headrace.core.errors import LocalError


def write_state(home: Path, pid: int) -> dict[str, str]:
    brokers = [{"id": i, "pid": pid, "url": f"http://127.0.0.1:{9701 + i}/", "data": "/d"} for i in range(2)]
    state = {"kubeconfig": "/k", "api": {"url": "http://127.0.0.1:9700", "pid": pid}, "brokers": brokers}
    (home / "dev.json").write_text(json.dumps(state))
    return {"HEADRACE_HOME": str(home)}


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_should_prefer_the_argument_when_all_are_there(tmp_path: Path) -> None:
    environ = {**write_state(tmp_path, os.getpid()), "HEADRACE_SERVER": "http://b:1"}
    assert find_servers("http://a:1/", environ=environ).urls == ("http://a:1",)
    assert find_servers(None, environ=environ).urls == ("http://b:1",)
    del environ["HEADRACE_SERVER"]
    assert find_servers(None, environ=environ).urls == ("http://127.0.0.1:9701", "http://127.0.0.1:9702")


def test_should_take_several_servers_when_commas_separate_them() -> None:
    assert find_servers("http://a:1, https://b:2,", environ={}).urls == ("http://a:1", "https://b:2")


def test_should_take_a_host_and_a_port_for_http() -> None:
    environ = {"HEADRACE_SERVER": "127.0.0.1:9701,[::1]:9702, broker-0.lab:9703/"}
    assert find_servers(None, environ=environ).urls == (
        "http://127.0.0.1:9701",
        "http://[::1]:9702",
        "http://broker-0.lab:9703",
    )


@pytest.mark.parametrize("server", ["localhost", "kafka://a:9701", "http://", "9701"])
def test_should_show_the_form_when_a_server_is_no_url(server: str) -> None:
    with pytest.raises(LocalError, match="http://host:9701"):
        find_servers(server, environ={})


def test_should_say_so_when_only_commas_are_given() -> None:
    with pytest.raises(LocalError, match="server is empty"):
        find_servers(",", environ={})


def test_should_name_the_remedy_when_no_dev_was_ever_started(tmp_path: Path) -> None:
    with pytest.raises(NoServerError, match="start `headrace dev`, or name a broker with --server"):
        find_servers(None, environ={"HEADRACE_HOME": str(tmp_path)})


def test_should_not_believe_the_state_of_a_dev_that_has_died(tmp_path: Path) -> None:
    assert running_dev(write_state(tmp_path, dead_pid())) is None


def test_should_count_a_dev_whose_brokers_are_just_restarting(tmp_path: Path) -> None:
    environ = write_state(tmp_path, os.getpid())
    state = json.loads((tmp_path / "dev.json").read_text())
    for broker in state["brokers"]:
        broker["pid"] = None
    (tmp_path / "dev.json").write_text(json.dumps(state))
    assert len(find_servers(None, environ=environ).urls) == 2


def test_should_say_so_when_a_dev_has_no_broker(tmp_path: Path) -> None:
    environ = write_state(tmp_path, os.getpid())
    state = json.loads((tmp_path / "dev.json").read_text())
    (tmp_path / "dev.json").write_text(json.dumps({**state, "brokers": []}))
    with pytest.raises(
        NoServerError, match=r"runs without a broker: `kubectl scale statefulset headrace --replicas 3`"
    ):
        find_servers(None, environ=environ)
    with pytest.raises(NoServerError, match="server has no urls"):
        find_servers(Servers(()), environ=environ)


@pytest.mark.parametrize("text", ["", "[]", '{"brokers": [{}]}', '{"brokers": 1}'])
def test_should_take_a_damaged_state_for_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "dev.json").write_text(text)
    assert running_dev({"HEADRACE_HOME": str(tmp_path)}) is None


def test_should_say_what_a_server_is_when_it_is_no_text() -> None:
    with pytest.raises(TypeError, match="server is int, not str"):
        find_servers(cast("str", 5), environ={})


def test_should_take_servers_as_they_are_when_the_caller_knows_more_than_a_url() -> None:
    servers = Servers(("https://api/proxy",), {"authorization": "Bearer t"}, reaches_leaders=False)
    assert find_servers(servers, environ={"HEADRACE_SERVER": "http://b:1"}) is servers


@pytest.mark.parametrize("url", ["http://a:9701", "http://10.0.0.1:9701", "https://a:9701,http://a:9701"])
def test_should_never_send_a_token_in_the_clear(url: str) -> None:
    urls = tuple(url.split(","))
    with pytest.raises(LocalError, match="a token is never sent over plain http"):
        Servers(urls, {"authorization": "Bearer t"})
    assert Servers(urls).urls == urls


@pytest.mark.parametrize("url", ["https://a:9701", "http://127.0.0.1:9701", "http://[::1]:9701", "http://localhost"])
def test_should_send_a_token_over_tls_and_within_this_machine(url: str) -> None:
    assert Servers((url,), {"authorization": "Bearer t"}).urls == (url,)


@pytest.mark.parametrize("argument", [None, "missing.pem"])
def test_should_say_so_when_the_bundle_is_not_there(argument: str | None) -> None:
    with pytest.raises(LocalError, match=r"missing\.pem"):
        find_servers("https://a:1", argument, {"HEADRACE_CA_FILE": "missing.pem"})
