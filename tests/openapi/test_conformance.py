"""A broker does what /openapi.json says: schemathesis tries every operation, over both protocols, at two brokers.

Not part of `make test`, for it takes most of a minute: `make openapi-check`. What it finds is in the output, each with
the curl command that shows it. It must find lies as well: documents that say something else are told apart.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.producer.staging import Commits
from tests.support.cluster import Cluster, http, running_cluster
from tests.support.group_calls import GroupCalls, create_offsets_topic
from tests.support.patience import patient

_CONFIG = Path(__file__).with_name("schemathesis.toml")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, each of which leads one partition of `flights`: either way of a request is tried."""
    with running_cluster(tmp_path_factory.mktemp("openapi"), brokers=2) as cluster:
        cluster.create_topic(partitions=2, maxMessageBytes="64Ki")
        create_offsets_topic(cluster, partitions=2)
        GroupCalls([cluster.url()], "warm-up").get("/offsets")
        with Commits("warm-up", cluster.url()) as commits:
            commits.status()
        leaders = {cluster.leader_url("flights", partition) for partition in (0, 1)}
        assert len(leaders) == 2, "each broker leads a partition"
        yield cluster


def schemathesis(cluster: Cluster, home: Path, document: str, protocol: str, *options: str) -> tuple[int, str]:
    """Exit code and output."""
    uid = http("GET", f"{cluster.url()}/v1/namespaces/default/topics/flights").json["uid"]
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    done = subprocess.run(
        [*command, "--config-file", str(_CONFIG), "run", document, "--url", cluster.url(), *options],
        cwd=home,
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": "tests.openapi.hooks",
            "HEADRACE_PROTOCOL": protocol,
            "HEADRACE_TOPIC_UID": uid,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patient(110),
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
def test_should_find_nothing_that_a_broker_does_otherwise(cluster: Cluster, tmp_path: Path, protocol: str) -> None:
    code, output = schemathesis(cluster, tmp_path, f"{cluster.url()}/openapi.json", protocol)
    assert code == 0, output
    # A run that broke off in the middle has found nothing either.
    selected = re.search(r"Selected: (\d+)/(\d+)\s+Tested: (\d+)", output)
    assert selected is not None, output
    tried, there, tested = map(int, selected.groups())
    assert tried == tested == there - 1, output  # all but sessions: see schemathesis.toml


def _forgotten_field(document: dict[str, Any]) -> None:
    fetched = document["components"]["schemas"]["Fetched"]
    del fetched["properties"]["nextOffset"]
    fetched["required"].remove("nextOffset")


def _forgotten_status(document: dict[str, Any]) -> None:
    path = "/v1/namespaces/{namespace}/topics/{topic}/partitions/{partition}/offsets"
    del document["paths"][path]["get"]["responses"]["412"]


def _promised_value(document: dict[str, Any]) -> None:
    document["components"]["parameters"]["acks"]["schema"]["enum"].append("2")


def _denied_value(document: dict[str, Any]) -> None:
    document["components"]["parameters"]["timeoutMs"]["schema"]["minimum"] = 10


def _promised_header(document: dict[str, Any]) -> None:
    path = "/v1/namespaces/{namespace}/topics/{topic}/partitions/{partition}/records"
    headers = document["paths"][path]["get"]["responses"]["200"]["headers"]
    headers["Headrace-Nothing"] = {"required": True, "schema": {"type": "integer"}}


@pytest.mark.parametrize(
    ("lie", "operation_id", "found"),
    [
        (_forgotten_field, "fetch", "Response violates schema"),
        (_forgotten_status, "findOffset", "Undocumented status code"),
        (_promised_value, "produce", "Schema-valid request rejected"),
        (_denied_value, "produce", "Schema-violating request accepted"),
        (_promised_header, "fetch", "Missing required response headers"),
    ],
)
def test_should_find_what_the_document_says_wrongly(
    cluster: Cluster, tmp_path: Path, lie: Callable[[dict[str, Any]], None], operation_id: str, found: str
) -> None:
    document = http("GET", f"{cluster.url()}/openapi.json").json
    lie(document)
    lying = tmp_path / "openapi.json"
    lying.write_text(json.dumps(document))
    options = ("--include-operation-id", operation_id, "--phases", "coverage", "--max-failures", "1")
    code, output = schemathesis(cluster, tmp_path, str(lying), "http/1.1", *options)
    assert (code, found in output) == (1, True), output
