"""One watch without HTTP: every change is told once, and how far it came."""

import time
from collections.abc import Iterable, Iterator

import pytest

from headrace.core.resources.metadata import API_VERSION
from headrace.dev.api.documents import Document
from headrace.dev.api.kinds import ResourceKind
from headrace.dev.api.listing import Selection
from headrace.dev.api.operations import Operations
from headrace.dev.api.routes import _follow
from headrace.dev.api.server import bootstrap
from headrace.dev.api.store import Store, Watch, WatchEvent, WatchOptions
from headrace.dev.api.strategy import ApiWriteOptions
from headrace.dev.crds import load_crds
from tests.support.api_objects import topic
from tests.support.waiting import eventually


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(":memory:")
    yield store
    store.close()


@pytest.fixture
def operations(store: Store) -> Operations:
    operations = Operations(store)
    bootstrap(operations, load_crds())
    return operations


@pytest.fixture
def kind(operations: Operations) -> ResourceKind:
    kind = operations.catalog.of_kind(API_VERSION, "Topic")
    assert kind is not None
    return kind


def test_should_not_tell_again_what_came_between_its_making_and_its_state(
    store: Store, operations: Operations, kind: ResourceKind
) -> None:
    def create(name: str) -> None:
        operations.create(kind, "default", Document(topic(name)), ApiWriteOptions())

    options = WatchOptions(
        Selection(), starts_with_state=True, marks_state_end=False, after=0, bookmarks=True, timeout_s=60
    )
    watch = Watch(store, kind, "default", options)
    create("orders")
    told = [event.object["metadata"]["name"] for event in watch.state()]
    create("flights")
    told += [event.object["metadata"]["name"] for event in watch.pending()]
    assert told == ["orders", "flights"]


async def test_should_say_how_far_it_came_though_its_time_is_over_by_then(store: Store, kind: ResourceKind) -> None:
    """As where the machine stood still, or the client took its time."""
    options = WatchOptions(
        Selection(), starts_with_state=True, marks_state_end=False, after=0, bookmarks=True, timeout_s=2
    )
    ends_s, told = time.monotonic() + options.timeout_s, list[str]()

    async def send(events: Iterable[WatchEvent]) -> None:
        told.extend(event.type for event in events)
        await eventually(lambda: time.monotonic() > ends_s, "its time is over")

    await _follow(Watch(store, kind, "default", options), send)
    assert told == ["BOOKMARK"]
