"""The SDK with brokers whose authority is a private one. (The page `docs/tls.md` shows the command.)"""

import pytest

from headrace import AsyncConsumer, AsyncProducer, Consumer, Producer
from headrace.core.errors import UntrustedBrokerError
from tests.support.certificates import Mount
from tests.support.cluster import Cluster
from tests.support.patience import patient


def test_should_serve_the_sdk_when_it_is_given_the_authority(cluster: Cluster, mount: Mount, topic: str) -> None:
    cluster.create_topic(topic, partitions=2)
    authority = str(mount.path("ca.crt"))
    with Producer(cluster.url(), ca_file=authority) as producer:
        for number in range(100):
            producer.send(topic, f"value {number}")
    with Consumer(topic, server=cluster.url(), ca_file=authority) as consumer:
        assert len(list(consumer.records(follow=False))) == 100


async def test_should_serve_event_loops_too(cluster: Cluster, mount: Mount, topic: str) -> None:
    cluster.create_topic(topic)
    authority = str(mount.path("ca.crt"))
    async with AsyncProducer(cluster.url(), ca_file=authority) as producer:
        await (await producer.send(topic, "value"))
    async with AsyncConsumer(topic, server=cluster.url(), ca_file=authority) as consumer:
        assert (await anext(aiter(consumer))).value == b"value"


def test_should_fail_at_once_when_the_authority_is_not_known(cluster: Cluster, topic: str) -> None:
    with Producer(cluster.url()) as producer, pytest.raises(UntrustedBrokerError, match="HEADRACE_CA_FILE"):
        producer.send(topic, "value").result(patient(20))
