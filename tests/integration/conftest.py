"""One Headrace of real processes for each process that runs tests, for all tests that leave it as they found it.

Each test has topics and groups of its own there. Tests that want other brokers or options start a cluster for that.
"""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from headrace.http2.async_transport import AsyncTransport
from tests.support.broker_app import BrokerApp, running_app
from tests.support.cluster import Cluster
from tests.support.patience import patient

_SHARING = frozenset(Path(__file__).parent / name for name in ("broker", "cli", "client"))
_BROKERS = 2
_shared = pytest.StashKey[Cluster]()
_numbers = count()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two brokers. Whoever stops or kills one brings it back."""
    cluster = request.config.stash[_shared] = Cluster(tmp_path_factory.mktemp("shared"))
    try:
        cluster.start(_BROKERS)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[BrokerApp]:
    """A broker's application in this process; it leads `default/flights/0`."""
    async with running_app(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def transport() -> AsyncIterator[AsyncTransport]:
    async with AsyncTransport(connect_timeout_s=patient(30)) as transport:
        yield transport


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the shared cluster again, where it was stopped."""
    cluster = item.config.stash.get(_shared, None)
    if cluster is not None and _is_sharing(item) and not cluster.is_running:
        cluster.start(_BROKERS)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the shared cluster while tests of other folders run: three idle processes cost as much as a test."""
    cluster = item.config.stash.get(_shared, None)
    if cluster is not None and not _is_sharing(nextitem):
        cluster.close()


def _is_sharing(item: pytest.Item | None) -> bool:
    return item is not None and item.path.parent in _SHARING
