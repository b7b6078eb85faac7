"""An operator that stood still, as under a debugger or on a machine that was frozen, against a Kubernetes API."""

import time

import pytest

from headrace.core.limits import LEASE_DURATION_MS
from headrace.core.resources.topic import Topic
from tests.support.operator import Cluster
from tests.support.waiting import eventually, observed

pytestmark = pytest.mark.contract
LEASE_S = LEASE_DURATION_MS / 1000


def is_lost(topic: Topic | None) -> bool:
    return topic is not None and topic.status["leaders"] == "0/6"


async def test_should_call_nobody_lost_before_a_lease_time_is_over_when_it_stood_still(cluster: Cluster) -> None:
    """However fast it looks again: what it could not hear meanwhile proves nothing."""
    await cluster.start_brokers(0)
    await cluster.operator.start()
    await cluster.create_topic()
    await cluster.wait_ready()
    await cluster.operator.freeze()
    await cluster.brokers[0].stop()
    frozen = time.monotonic()
    await eventually(lambda: time.monotonic() > frozen + LEASE_S + 0.5, "all Leases would have run out")
    await cluster.create_topic("later")
    await cluster.patch_topic({"metadata": {"annotations": {"headrace.io/paused": "true"}}}, "later")
    thawed = time.monotonic()
    await cluster.operator.thaw()
    await cluster.wait_condition("Paused", "True", "PausedByAnnotation", "later")  # it acts, and has looked
    await observed(cluster.topic, is_lost, "the broker is lost, which has stopped for good", timeout_s=60)
    assert time.monotonic() - thawed >= LEASE_S
