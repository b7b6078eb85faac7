"""One watch without HTTP: every change is told once."""

from headrace.core.resources.metadata import API_VERSION
from headrace.dev.api.documents import Document
from headrace.dev.api.operations import Operations
from headrace.dev.api.selectors import Selection
from headrace.dev.api.server import bootstrap
from headrace.dev.api.store import Store
from headrace.dev.api.watch import Watch, WatchOptions
from headrace.dev.api.written import WriteOptions
from headrace.dev.crds import load_crds
from tests.support.kubeconfig_objects import topic


def test_should_not_tell_again_what_came_between_its_making_and_its_state() -> None:
    store = Store(":memory:")
    operations = Operations(store)
    bootstrap(operations, load_crds())
    kind = operations.catalog.of_kind(API_VERSION, "Topic")
    assert kind is not None

    def create(name: str) -> None:
        operations.create(kind, "default", Document(topic(name)), WriteOptions())

    options = WatchOptions(
        Selection(), starts_with_state=True, marks_state_end=False, after=0, bookmarks=True, timeout_s=60
    )
    watch = Watch(store, kind, "default", options)
    create("orders")
    told = [event.object["metadata"]["name"] for event in watch.state()]
    create("flights")
    told += [event.object["metadata"]["name"] for event in watch.pending()]
    assert told == ["orders", "flights"]
    store.close()
