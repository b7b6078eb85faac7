"""An operator's view of answers, without an API server.

Pods and a StatefulSet that may not be seen, or are not what they should be: no pass fails for them.
"""

from typing import Any, cast

import pytest

from headrace.core.control.observed import BrokerState
from headrace.core.resources.kubernetes_objects import BrokerPod, BrokerSet
from headrace.core.resources.lease import CLUSTER_LABEL, BrokerLease, Whereabouts, lease_name
from headrace.core.resources.metadata import Metadata
from headrace.core.types import BrokerId, Incarnation
from headrace.kube.client import Listing
from headrace.kube.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError, UnreadableObjectError
from headrace.kube.resource import LEASES, PODS, ObjectKey
from headrace_operator.observer import Observer, Scope, Workload

BROKER = BrokerId(0)
METADATA = Metadata(name=lease_name(BROKER), namespace="default", labels={CLUSTER_LABEL: "headrace"})


class Api:
    """One broker, and its Pod, as long as nothing forbids to look."""

    def __init__(self) -> None:
        self.pods: list[BrokerPod] = [BrokerPod("headrace", BROKER, "uid-0", 0, running=True)]
        self.refusal: ApiError | None = None
        self.unreadable: tuple[ObjectKey, ...] = ()

    async def list(self, resource: object, **_: object) -> Listing[Any]:
        if resource is PODS and self.refusal is not None:
            raise self.refusal
        lease = BrokerLease(METADATA, BROKER, Incarnation(1), "http://127.0.0.1:1", "a")
        items = {id(LEASES): (lease,), id(PODS): tuple(self.pods)}
        unreadable = self.unreadable if resource is LEASES else ()
        return Listing(items.get(id(resource), ()), "7", len(unreadable), unreadable)

    async def get(self, *_: object) -> BrokerSet:
        return BrokerSet(0, 3)


async def state_of(observer: Observer) -> BrokerState:
    return (await observer.observe()).observed.brokers[BROKER].state


async def test_should_take_a_broker_for_lost_when_its_pod_is_gone() -> None:
    api = Api()
    observer = Observer(cast("Any", api), Scope("headrace", "default", 1_000))
    assert await state_of(observer) is not BrokerState.LOST
    api.pods.clear()
    assert await state_of(observer) is BrokerState.LOST


@pytest.mark.parametrize("refusal", [ForbiddenError("not allowed any more"), NotFoundError("no such kind")])
async def test_should_take_nobody_for_lost_when_pods_cannot_be_seen_any_more(refusal: ApiError) -> None:
    api = Api()
    observer = Observer(cast("Any", api), Scope("headrace", "default", 1_000))
    await observer.observe()
    api.refusal = refusal
    assert await state_of(observer) is not BrokerState.LOST
    api.refusal = None
    assert await state_of(observer) is not BrokerState.LOST


async def test_should_tell_of_brokers_whose_leases_cannot_be_read_and_of_those_that_there_are_to_be() -> None:
    api = Api()
    api.unreadable = tuple(ObjectKey("default", name) for name in ("headrace-broker-1", "what-is-no-broker"))
    picture = await Observer(cast("Any", api), Scope("headrace", "default", 1_000)).observe()
    assert (picture.observed.unreadable, picture.observed.expected) == ({1}, {0, 1, 2})
    assert picture.unreadable == 2


@pytest.mark.parametrize(
    ("whereabouts", "url"),
    [(Whereabouts.THIS_MACHINE, "http://127.0.0.1:1"), (Whereabouts.STATEFUL_SET, ""), (None, "http://127.0.0.1:1")],
)
async def test_should_go_only_where_brokers_of_the_cluster_can_be(whereabouts: Whereabouts | None, url: str) -> None:
    observer = Observer(cast("Any", Api()), Scope("headrace", "default", 1_000, whereabouts))
    assert (await observer.observe()).observed.brokers[BROKER].url == url
    assert not observer.lease_seen(BrokerLease(METADATA, BROKER, Incarnation(1), "http://127.0.0.1:1", "a"))


class FailingApi:
    def __init__(self, error: ApiError) -> None:
        self.error = error

    async def get(self, *_: object) -> None:
        raise self.error

    async def list(self, *_: object, **__: object) -> Listing[Any]:
        return Listing((), "1", left_out=2)


@pytest.mark.parametrize(
    ("error", "unreadable", "said"),
    [
        (UnreadableObjectError("StatefulSet default/main cannot be read, mend it"), 1, 1),
        (ForbiddenError("no"), 0, 1),
        (NotFoundError("there is none"), 0, 0),
    ],
)
async def test_should_do_without_what_tells_nothing_and_say_so_once(
    error: ApiError, unreadable: int, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    workload = Workload(cast("Any", FailingApi(error)), "default", "main")
    for number in range(1, 3):
        assert await workload.broker_set() is None
        assert workload.unreadable == number * unreadable
    assert sum(record.levelname == "ERROR" for record in caplog.records) == said


async def test_should_count_pods_that_cannot_be_read() -> None:
    workload = Workload(cast("Any", FailingApi(NotFoundError("none"))), "default", "main")
    assert await workload.pods() == ()
    assert workload.unreadable == 2


async def test_should_not_take_silence_for_an_answer() -> None:
    with pytest.raises(ApiUnavailableError):
        await Workload(cast("Any", FailingApi(ApiUnavailableError("away"))), "default", "main").broker_set()
