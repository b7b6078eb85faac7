"""Three brokers with replicated partitions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.replicated_brokers import ReplicatedBrokers, replicated_brokers


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ReplicatedBrokers]:
    with replicated_brokers(tmp_path) as running:
        yield running
