"""One Headrace of real processes for each process that runs tests, for all tests that leave it as they found it.

Each test has topics and groups of its own there. Tests that want other brokers or options start a cluster for that.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.cluster import Cluster

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
