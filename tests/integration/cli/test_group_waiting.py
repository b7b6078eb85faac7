"""What `headrace group reset` and `delete` wait for, against an API whose operator and coordinator the test plays."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from headrace.cli import resources
from headrace.cli.group_view import read_group
from headrace.cli.options import Where
from headrace.core.errors import HeadraceError, LocalError
from headrace.core.resources.consumer_group import ResetOffsets, ResetTo
from headrace.kube.client import KubeClient
from headrace.kube.resource import CONSUMER_GROUPS
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

GROUPS = "/apis/headrace.io/v1alpha1/namespaces/default/consumergroups"
EARLIEST = ResetOffsets("r-1", ResetTo.EARLIEST, topics=("orders",))
MEMBER = {"memberId": "m1", "instanceId": "billing-0", "clientAddress": "10.1.2.3"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Nothing but the API: nobody else writes."""
    alone = Cluster(tmp_path_factory.mktemp("api"))
    try:
        alone.start_api()
        yield alone
    finally:
        alone.close()


@pytest.fixture
def name(api: Cluster, request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("_", "-").removeprefix("test-should-")[:60].strip("-")


def run(api: Cluster, work: Callable[[KubeClient], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with await KubeClient.connect(kubeconfig=str(api.kubeconfig)) as client:
            await work(client)

    asyncio.run(connected())


def condition(api: Cluster, name: str, type_: str, reason: str, message: str) -> dict[str, Any]:
    """As the operator writes it, of the present spec."""
    generation = api.kube("GET", f"{GROUPS}/{name}")["metadata"]["generation"]
    return {
        "type": type_,
        "status": "False",
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": "2026-11-21T09:00:00Z",
    }


def says(api: Cluster, name: str, **status: Any) -> None:
    api.kube("PATCH", f"{GROUPS}/{name}/status", {"status": status})


def create(api: Cluster, name: str, **metadata: Any) -> None:
    manifest = {"apiVersion": "headrace.io/v1alpha1", "kind": "ConsumerGroup", "metadata": {"name": name, **metadata}}
    api.kube("POST", GROUPS, manifest)


def test_should_create_the_group_with_the_reset_and_wait_until_it_is_applied(api: Cluster, name: str) -> None:
    heard: list[str] = []

    async def work(client: KubeClient) -> None:
        await resources.ask_for_reset(client, name, "default", EARLIEST, "blue")
        made = api.kube("GET", f"{GROUPS}/{name}")
        assert made["spec"]["cluster"] == "blue"
        assert made["spec"]["resetOffsets"] == {"id": "r-1", "to": "Earliest", "topics": ["orders"]}
        waits = asyncio.create_task(resources.wait_until_reset(client, name, "default", "r-1", heard.append))
        await eventually(lambda: heard == ["the operator has not looked at it yet"], "it says so")
        says(api, name, state="Stable", members=[MEMBER])
        await eventually(lambda: "stop billing-0 (10.1.2.3)" in heard[-1], "it names who is in it")
        said = condition(api, name, "OffsetsReset", "UnknownTopic", "r-1: there is no topic orders")
        says(api, name, state="Empty", members=[], conditions=[said])
        await eventually(lambda: heard[-1] == "there is no topic orders", "it says what the operator says")
        assert not waits.done()
        says(api, name, lastReset={"id": "r-1", "time": "2026-11-21T09:00:00Z", "result": "Applied"})
        await waits

    run(api, work)


def test_should_leave_nothing_of_the_reset_before(api: Cluster, name: str) -> None:
    create(api, name)
    at = ResetOffsets("r-0", ResetTo.TIMESTAMP, 1_795_258_800_000)

    async def work(client: KubeClient) -> None:
        for wanted in (at, EARLIEST):
            await resources.ask_for_reset(client, name, "default", wanted, "headrace")
            assert (await client.get(CONSUMER_GROUPS, name, "default")).spec.reset_offsets == wanted

    run(api, work)


def test_should_take_back_its_own_reset_alone(api: Cluster, name: str) -> None:
    create(api, name)

    async def work(client: KubeClient) -> None:
        await resources.ask_for_reset(client, name, "default", EARLIEST, "headrace")
        for id_, left in (("r-0", EARLIEST), ("r-1", None), ("r-1", None)):
            await resources.clear_reset(client, name, "default", id_)
            assert (await client.get(CONSUMER_GROUPS, name, "default")).spec.reset_offsets == left
        await resources.clear_reset(client, "nowhere", "default", "r-1")

    run(api, work)


@pytest.mark.parametrize("reset", [None, {"id": "r-2", "to": "Latest"}])
def test_should_end_when_somebody_wants_something_else(api: Cluster, name: str, reset: dict[str, Any] | None) -> None:
    name = f"else-{'nothing' if reset is None else 'other'}"
    heard: list[str] = []

    async def work(client: KubeClient) -> None:
        await resources.ask_for_reset(client, name, "default", EARLIEST, "headrace")
        waits = asyncio.create_task(resources.wait_until_reset(client, name, "default", "r-1", heard.append))
        await eventually(lambda: bool(heard), "it waits")
        api.kube("PATCH", f"{GROUPS}/{name}", {"spec": {"resetOffsets": reset}})
        with pytest.raises(HeadraceError, match=r"was not reset: somebody else has changed spec\.resetOffsets"):
            await waits

    run(api, work)


def test_should_end_when_the_group_is_deleted_meanwhile(api: Cluster, name: str) -> None:
    heard: list[str] = []

    async def work(client: KubeClient) -> None:
        await resources.ask_for_reset(client, name, "default", EARLIEST, "headrace")
        waits = asyncio.create_task(resources.wait_until_reset(client, name, "default", "r-1", heard.append))
        await eventually(lambda: bool(heard), "it waits")
        api.kube("DELETE", f"{GROUPS}/{name}")
        with pytest.raises(HeadraceError, match="was deleted before it was reset"):
            await waits

    run(api, work)


def test_should_give_up_when_nobody_carries_it_out(api: Cluster, name: str) -> None:
    async def work(client: KubeClient) -> None:
        await resources.ask_for_reset(client, name, "default", EARLIEST, "headrace")
        with pytest.raises(
            HeadraceError,
            match=r"is not reset after 0\.2 s, though nobody is in it: .*so it may not run: .*\. It stays",
        ):
            await resources.wait_until_reset(client, name, "default", "r-1", lambda _: None, patience_s=0.2)

    run(api, work)


def test_should_wait_until_the_group_is_gone(api: Cluster, name: str) -> None:
    create(api, name, finalizers=["headrace.io/group"])
    heard: list[str] = []

    async def work(client: KubeClient) -> None:
        waits = asyncio.create_task(
            resources.delete_group(client, await client.get(CONSUMER_GROUPS, name, "default"), heard.append)
        )
        await eventually(lambda: "deletionTimestamp" in api.kube("GET", f"{GROUPS}/{name}")["metadata"], "it is asked")
        says(api, name, conditions=[condition(api, name, "Ready", "GroupNotEmpty", "stop m1")])
        await eventually(lambda: heard == ["stop m1"], "it says what it waits for")
        assert not waits.done()
        api.kube("PATCH", f"{GROUPS}/{name}", {"metadata": {"finalizers": None}})
        await waits

    run(api, work)


def test_should_say_that_the_group_is_still_there(api: Cluster, name: str) -> None:
    create(api, name, finalizers=["headrace.io/group"])

    async def work(client: KubeClient) -> None:
        found = await client.get(CONSUMER_GROUPS, name, "default")
        with pytest.raises(HeadraceError, match=r"is being deleted, and is still there after 0\.2 s"):
            await resources.delete_group(client, found, lambda _: None, patience_s=0.2)

    run(api, work)


def test_should_say_that_there_is_no_group_where_there_never_was_one(api: Cluster, name: str) -> None:
    """Before the first one no broker can say so: nobody coordinates groups."""
    where = Where("http://127.0.0.1:1", None, str(api.kubeconfig), None, None)
    with pytest.raises(LocalError, match=f"^there is no group {name} in namespace default"):
        read_group(where, name)
