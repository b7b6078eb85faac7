"""The SDK at the brokers that are shared; each test has a topic of its own."""

import pytest

from tests.support.client_bench import Bench
from tests.support.cluster import Cluster


@pytest.fixture
def bench(shared: Cluster, topic: str) -> Bench:
    return Bench(shared, topic)
