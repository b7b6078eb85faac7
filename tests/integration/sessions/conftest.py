from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.broker_app import BrokerApp, running_app


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[BrokerApp]:
    """A broker's application in this process; it leads `default/flights/0`."""
    async with running_app(tmp_path / "data") as running:
        yield running
