"""What the chart runs before the operator goes for good, as a process against a Kubernetes API."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from headrace.core.resources.metadata import DEFAULT_CLUSTER
from headrace.core.resources.topic import topic_manifest
from headrace.kube.resource import CONSUMER_GROUPS, TOPICS, raw_resource
from tests.support.kube_api import API_VARIABLE
from tests.support.kubeconfig import write_kubeconfig
from tests.support.operator import Cluster
from tests.support.waiting import observed

pytestmark = pytest.mark.contract
DEPLOYMENTS, PODS = raw_resource("apps", "v1", "deployments", "Deployment"), raw_resource("", "v1", "pods", "Pod")
needs_workloads = pytest.mark.skipif(API_VARIABLE not in os.environ, reason="the embedded API has no Deployments")
LABELS = {"app": "operator"}


async def uninstalling(cluster: str, kubeconfig: Path, *more: str) -> tuple[int | None, str]:
    """Exit code, and what it said."""
    given = ("--cluster", cluster, "--namespace", cluster, "--kubeconfig", str(kubeconfig))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace_operator.uninstalling", "--deployment", "operator", *given, *more),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    return process.returncode, said.decode()


async def create_deployment(cluster: Cluster) -> None:
    """With a pod of its own: nobody carries Deployments out here."""
    container = {"name": "operator", "image": "headrace"}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
    metadata = {"name": "operator", "namespace": cluster.name}
    spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template}
    await cluster.client.create(
        DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    )
    pod = {"metadata": {**metadata, "labels": LABELS}, "spec": {"containers": [container]}}
    await cluster.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod})


async def test_should_let_topics_and_groups_go_when_no_operator_will(cluster: Cluster, kubeconfig: Path) -> None:
    await cluster.operator.start()
    await cluster.start_brokers(0, 1)
    await cluster.create_topic()
    await cluster.wait_ready()
    await cluster.operator.kill()
    await cluster.patch_topic({"metadata": {"finalizers": ["headrace.io/delete-data", "example.com/kept"]}})
    metadata = {"name": "g", "namespace": cluster.name, "finalizers": ["headrace.io/group"]}
    kind = {"apiVersion": CONSUMER_GROUPS.api_version, "kind": "ConsumerGroup"}
    group = {**kind, "metadata": metadata, "spec": {"cluster": cluster.name}}
    await cluster.client.create(CONSUMER_GROUPS, group)
    other = topic_manifest("other", cluster.name, {"cluster": DEFAULT_CLUSTER, "partitions": 1})
    other["metadata"]["finalizers"] = ["headrace.io/delete-data"]
    await cluster.client.create(TOPICS, other)

    code, said = await uninstalling(cluster.name, kubeconfig)

    assert code == 0, said
    topic = await cluster.topic()
    assert topic is not None
    assert topic.metadata.finalizers == ("example.com/kept",)
    assert (await cluster.client.get(CONSUMER_GROUPS, "g", cluster.name)).metadata.finalizers == ()
    left = await cluster.client.get(TOPICS, "other", cluster.name)
    assert left.metadata.finalizers == ("headrace.io/delete-data",), "it is of another cluster"
    assert len(await cluster.sets()) == 1, "nothing is deleted"


async def test_should_have_nothing_to_do_where_the_definitions_are_gone(tmp_path: Path) -> None:
    # It knows no kind, and no object.
    async with TestServer(web.Application()) as server:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", str(server.make_url("")))
        code, said = await uninstalling("gone", kubeconfig)
    assert code == 0, said
    assert said.splitlines() == [
        "Deployment gone/operator is gone already",
        "the definition of Topic is gone already",
        "the definition of ConsumerGroup is gone already",
    ]


@needs_workloads
async def test_should_wait_until_the_last_operator_has_ended(cluster: Cluster, kubeconfig: Path) -> None:
    await create_deployment(cluster)
    waiting = asyncio.create_task(uninstalling(cluster.name, kubeconfig))

    async def replicas() -> int:
        return int((await cluster.client.get(DEPLOYMENTS, "operator", cluster.name))["spec"]["replicas"])

    await observed(replicas, lambda count: count == 0, "it is scaled to nothing")
    assert not waiting.done()
    await cluster.client.delete(PODS, "operator", cluster.name, grace_period_s=0)
    code, said = await waiting
    assert code == 0, said


@needs_workloads
async def test_should_say_which_operator_does_not_end(cluster: Cluster, kubeconfig: Path) -> None:
    await create_deployment(cluster)
    await cluster.create_topic()
    await cluster.patch_topic({"metadata": {"finalizers": ["headrace.io/delete-data"]}})
    code, said = await uninstalling(cluster.name, kubeconfig, "--wait", "0.1")
    assert code == 1
    assert f"kubectl -n {cluster.name} get pods -l app=operator" in said
    topic = await cluster.topic()
    assert topic is not None
    assert topic.metadata.finalizers == ("headrace.io/delete-data",)
    await cluster.client.delete(PODS, "operator", cluster.name, grace_period_s=0)
