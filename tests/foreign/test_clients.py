"""The example clients of other languages against real brokers: HTTP/2, with nothing but what their language brings.

Not part of `make test`, as their compilers take their time: `make foreign`.
"""

import re
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.unsteady import unsteady
from tests.support.certificates import Authority, Mount
from tests.support.cluster import Cluster, http, running_cluster
from tests.support.patience import patient
from tests.support.tools import require_tool

_ROOT = Path(__file__).parents[2]
_PROTOCOLS = {"node": "h2c", "go": "HTTP/2.0", "java": "HTTP_2"}
"""As each calls it."""
_LANGUAGES = ["curl", "node", "go", "java"]


@dataclass(frozen=True, slots=True)
class Client:
    language: str
    command: str
    """As docs/protocol.md has it."""
    url: str
    ca_file: Path

    def run(self, topic: str) -> subprocess.CompletedProcess[str]:
        command = re.sub(r"https?://\S+ flights", f"{self.url} {topic}", self.command)
        command = command.replace("=ca.crt", f"={self.ca_file}")
        return subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patient(100),
            check=False,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Broker 0 without TLS, which leads the topic of each language; broker 1 with TLS, which passes all on to it."""
    home = tmp_path_factory.mktemp("foreign")
    with running_cluster(home / "cluster") as cluster:
        for language in _LANGUAGES:
            cluster.create_topic(language)
        certificate = Mount(home / "tls", Authority().secret())
        cluster.start_broker(1, *certificate.options)
        yield cluster


@pytest.fixture(scope="module")
def commands() -> dict[str, str]:
    """Of docs/protocol.md, by language."""
    page = (_ROOT / "docs" / "protocol.md").read_text()
    block = page.partition("## Clients in other languages")[2].partition("```sh\n")[2].partition("```")[0]
    return dict(zip(_LANGUAGES, block.splitlines(), strict=True))


@pytest.fixture
def client(request: pytest.FixtureRequest, cluster: Cluster, commands: dict[str, str]) -> Client:
    require_tool(request.param)
    command = commands[request.param]
    return Client(
        request.param, command, cluster.url(1 if "https:" in command else 0), cluster.home.parent / "tls" / "ca.crt"
    )


def records(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    answer = http("GET", f"{cluster.records_url(topic)}?valueFormat=json")
    found: list[dict[str, Any]] = answer.json["records"]
    return found


def watched(said: list[str]) -> list[int]:
    """The flights of the records that came by the watch."""
    lines = [line for line in said if line.startswith("watched")]
    return [int(re.findall(r'"flight": ?(\d+)', line)[0]) for line in lines]


@pytest.mark.parametrize(("client", "protocol"), _PROTOCOLS.items(), indirect=["client"])
def test_should_write_and_watch_over_http2(cluster: Cluster, client: Client, protocol: str) -> None:
    done = client.run(client.language)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert f"protocol: {protocol}" in said
    assert "wrote 0 to 2" in said
    assert watched(said) == [1545, 1714, 1141]
    written = records(cluster, client.language)
    assert [record["key"] for record in written] == ["UA1545", "UA1714", "UA1141"]
    assert [record["value"] for record in written] == [{"flight": 1545}, {"flight": 1714}, {"flight": 1141}]
    assert [record["headers"] for record in written] == [[{"name": "source", "value": client.language}]] * 3
    if client.language == "go":
        assert "fetched a batch of 3 records from offset 0, leader epoch 1: both checksums are right" in said


@pytest.mark.parametrize("client", _PROTOCOLS, indirect=True)
def test_should_get_over_refusals_and_a_watch_that_breaks_off(cluster: Cluster, client: Client) -> None:
    tls = None
    if client.url.startswith("https:"):
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(client.ca_file.with_name("tls.crt"), client.ca_file.with_name("tls.key"))
    with unsteady(cluster.url(), tls) as port:
        before = len(records(cluster, client.language))
        done = replace(client, url=f"{'https' if tls else 'http'}://127.0.0.1:{port}").run(client.language)
    assert done.returncode == 0, done.stderr
    assert "the watch broke off, going on from offset" in done.stderr
    assert watched(done.stdout.splitlines()) == [1545, 1714, 1141]
    assert len(records(cluster, client.language)) == before + 3


def test_should_notice_any_changed_byte_of_a_batch() -> None:
    command = [require_tool("go"), "test", "./..."]
    done = subprocess.run(command, cwd=_ROOT / "examples/clients/go", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("client", ["curl"], indirect=True)
def test_should_write_compressed_and_watch_with_curl(cluster: Cluster, client: Client) -> None:
    done = client.run("curl")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "protocol: HTTP/2"
    assert [record["value"] for record in records(cluster, "curl")] == [
        {"carrier": "UA", "flight": 1545},
        {"carrier": "UA", "flight": 1714},
        *("one", "two", "three"),
    ]
    assert done.stdout.count('"N14228"') == 2, "fetched and watched"


@pytest.mark.parametrize("client", _LANGUAGES, indirect=True)
def test_should_say_what_the_broker_refused(client: Client) -> None:
    done = client.run("nope")
    assert done.returncode != 0
    assert "topic 'nope' does not exist in namespace 'default'" in done.stdout + done.stderr
