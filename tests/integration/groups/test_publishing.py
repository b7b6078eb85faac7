"""What a broker does with ConsumerGroups when others do something else with them: on the embedded API, in-process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import CommitReceived, DeletionReceived, ResetResolved
from headrace.core.groups.identity import GroupName, GroupState, GroupType
from headrace.core.groups.status import GroupReport, assigned, report_of, target_for
from headrace.core.resources.consumer_group import GROUP_FINALIZER, ConsumerGroup, auto_created
from headrace.core.resources.metadata import API_VERSION, Object
from headrace.core.types import BrokerId, Offset
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiUnavailableError, ConflictError, ForbiddenError, NotFoundError
from headrace.kube.resource import CONSUMER_GROUPS, Resource
from headrace_broker.clock import monotonic_ms
from headrace_broker.coordinators import consumer_groups as publishing
from headrace_broker.coordinators.consumer_groups import GroupPublishing, GroupWatching, KnownGroups, WantedGroup
from headrace_broker.coordinators.group_metrics import GroupWriteMetrics
from tests.support.coordinated import TOPICS, Coordinated
from tests.support.group_world import GROUP, part
from tests.support.kube_api import namespace, some_api
from tests.support.waiting import eventually, observed

T = TypeVar("T")


@dataclass
class Shown:
    client: KubeClient
    groups: Coordinated
    known: KnownGroups
    publishing: GroupPublishing
    watching: GroupWatching

    async def get(self, group: GroupName = GROUP) -> ConsumerGroup | None:
        try:
            return await self.client.get(CONSUMER_GROUPS, group.name, group.namespace)
        except NotFoundError:
            return None

    async def until(self, what: str, holds: Callable[[ConsumerGroup | None], bool]) -> ConsumerGroup | None:
        return await observed(self.get, holds, what)

    def changed(self) -> None:
        self.publishing.changed(GROUP)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[KubeClient]:
    with some_api(tmp_path) as kubeconfig:
        async with await KubeClient.connect(kubeconfig=str(kubeconfig)) as client:
            for resource in (await client.list(CONSUMER_GROUPS)).items:
                await released(client, resource.name)
                await client.delete(CONSUMER_GROUPS, resource.metadata.name, resource.metadata.namespace)
            yield client


@asynccontextmanager
async def showing(client: KubeClient, groups: Coordinated, cluster: str = "headrace") -> AsyncIterator[Shown]:
    known = KnownGroups()
    publishing = GroupPublishing(BrokerId(1), cluster, client, known, groups, GroupWriteMetrics(CollectorRegistry()))
    watching = GroupWatching(client, cluster, known, groups)
    watching.on_change, watching.on_list = publishing.seen, publishing.changed_all
    tasks = [asyncio.create_task(publishing.run()), asyncio.create_task(watching.run())]
    try:
        await eventually(lambda: known.is_complete, "ConsumerGroups are listed")
        yield Shown(client, groups, known, publishing, watching)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def has_members(*names: str) -> Callable[[ConsumerGroup | None], bool]:
    return lambda found: found is not None and [each.member for each in found.status.members] == [*names]


async def released(client: KubeClient, group: GroupName = GROUP) -> None:
    """As by an operator that has deleted the group."""
    await client.patch(CONSUMER_GROUPS, group.name, group.namespace, {"metadata": {"finalizers": []}})


async def test_should_show_groups_that_were_there_before_their_resources_were_listed(client: KubeClient) -> None:
    groups = Coordinated()
    groups.join("a")
    async with showing(client, groups) as shown:
        found = await shown.until("it is shown", has_members("a"))
        assert found is not None
        assert found.auto_created
        assert (found.status.coordinator, found.metadata.labels["headrace.io/cluster"]) == (1, "headrace")


async def test_should_write_again_upon_what_somebody_else_has_written_meanwhile(client: KubeClient) -> None:
    groups = Coordinated()
    async with showing(client, groups) as shown:
        groups.join("a")
        shown.changed()
        found = await shown.until("it is shown", has_members("a"))
        assert found is not None
        # What this broker knows is of before: its PUT meets a conflict, and the other's word stays.
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "Stable",
            "message": "",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        }
        patch = {"status": {"conditions": [condition]}}
        await client.patch(CONSUMER_GROUPS, GROUP.name, GROUP.namespace, patch, subresource="status")
        shown.known.put(found)
        groups.join("b")
        shown.changed()
        found = await shown.until("both are shown", has_members("a", "b"))
        assert found is not None
        assert [each["reason"] for each in found.status.conditions] == ["Stable"]


async def test_should_create_it_again_that_somebody_has_deleted_under_a_living_group(client: KubeClient) -> None:
    groups = Coordinated()
    groups.join("a")
    async with showing(client, groups) as shown:
        found = await shown.until("it is shown", has_members("a"))
        assert found is not None
        await released(client)
        await client.delete(CONSUMER_GROUPS, GROUP.name, GROUP.namespace)
        again = await shown.until("it is shown again", has_members("a"))
        assert again is not None
        assert again.metadata.uid != found.metadata.uid


async def test_should_take_one_that_another_broker_has_created_first(client: KubeClient) -> None:
    groups = Coordinated()
    async with showing(client, groups) as shown:
        created = await client.create(CONSUMER_GROUPS, auto_created(GROUP, "headrace"))
        await eventually(lambda: shown.known.find(GROUP) is not None, "it is seen")
        shown.known.remove(created)
        groups.join("a")
        shown.changed()
        await shown.until("it is shown", has_members("a"))


async def test_should_delete_its_own_with_the_group_and_leave_what_somebody_made(client: KubeClient) -> None:
    groups = Coordinated()
    groups.join("a")
    async with showing(client, groups) as shown:
        await shown.until("it is shown", has_members("a"))
        groups.die()
        shown.changed()
        await shown.until("it is gone", lambda found: found is None)
        manifest = {"apiVersion": API_VERSION, "kind": "ConsumerGroup", "metadata": {"name": GROUP.name}}
        manifest["metadata"] = {"name": GROUP.name, "namespace": GROUP.namespace}
        await client.create(CONSUMER_GROUPS, manifest)
        found = await shown.until(
            "it is empty", lambda found: found is not None and found.status.state is GroupState.EMPTY
        )
        assert found is not None
        assert not found.auto_created


async def test_should_delete_what_was_created_for_somebody_who_never_came(
    client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = Coordinated(is_here=False)
    async with showing(client, groups) as shown:
        shown.publishing.wanted(GROUP)
        await shown.until("it is there", lambda found: found is not None and found.status.state is None)
        monkeypatch.setattr(publishing, "GROUP_UNUSED_MS", 200)
        groups.is_here = True
        shown.publishing.changed_all()
        await shown.until("it is gone", lambda found: found is None)


async def test_should_touch_nothing_of_another_cluster(client: KubeClient) -> None:
    await client.create(CONSUMER_GROUPS, auto_created(GROUP, "other"))
    before = await client.get(CONSUMER_GROUPS, GROUP.name, GROUP.namespace)
    groups = Coordinated()
    groups.join("a")
    async with showing(client, groups) as shown, namespace(client, "groups") as elsewhere:
        mine = GroupName(elsewhere, "mine")
        await client.create(CONSUMER_GROUPS, auto_created(mine, "headrace"))
        await eventually(lambda: mine in groups.settings, "what comes later was seen")
        shown.changed()
        shown.publishing.wanted(GROUP)
        await released(client, mine)
        await client.delete(CONSUMER_GROUPS, mine.name, mine.namespace)
        await eventually(lambda: groups.settings[mine] is None, "and what comes later still")
        assert GROUP not in groups.settings
        assert await shown.get() == before


async def test_should_offer_what_the_operator_publishes_and_show_what_is_committed_then(client: KubeClient) -> None:
    groups = Coordinated()
    groups.join("a")
    async with showing(client, groups) as shown:
        found = await shown.until("it is shown", has_members("a"))
        assert found is not None
        target = target_for(found, TOPICS, 0)
        assert target is not None
        written = assigned(found, target, TOPICS)
        await client.replace(CONSUMER_GROUPS, written.to_object(), subresource="status")
        await eventually(lambda: groups.world.image.targets == target, "the coordinator has taken it")
        assert groups.world.ignored == []
        shown.changed()
        await shown.until("it is shown", lambda found: found is not None and found.status.members[0].epoch == 1)


class Recording(KubeClient):
    """Remembers the resets that were told of."""

    resets: ClassVar[list[object]] = []

    async def replace(self, resource: Resource[T], obj: Object, *, subresource: str | None = None) -> T:
        self.resets.append(obj["status"].get("lastReset"))
        return await super().replace(resource, obj, subresource=subresource)


async def test_should_show_nothing_that_is_not_committed(client: KubeClient) -> None:
    groups = Coordinated()
    world = groups.world
    world.deliver(CommitReceived(1, {part("flights", 0): OffsetValue(Offset(3))}))
    world.commit_log()
    async with Recording(client.credentials) as recording, showing(recording, groups) as shown:
        await shown.until("it is shown", lambda found: found is not None and found.status.state is GroupState.EMPTY)
        world.deliver(ResetResolved(2, "replay-1", {}))
        before = groups.settled_asked
        shown.changed()
        await eventually(lambda: groups.settled_asked > before, "it was looked at")
        world.deliver(DeletionReceived(3))
        before = groups.settled_asked
        shown.changed()
        await eventually(lambda: groups.settled_asked > before, "it was looked at")
        world.crash(kept=0)
        groups.join("a")
        shown.changed()
        await shown.until("it lives, with its offsets", has_members("a"))
        assert [told for told in recording.resets if told] == []
        assert world.image.offsets


class Scripted(KubeClient):
    """Does something else at some of its calls."""

    fails: dict[str, Exception]
    """At the next call of this name."""
    created: list[str]
    after_patch: Callable[[], Awaitable[object]] | None = None
    """Once."""

    @classmethod
    def of(cls, client: KubeClient, **fails: Exception) -> "Scripted":
        made = cls(client.credentials)
        made.fails, made.created = fails, []
        return made

    def _maybe_fail(self, name: str) -> None:
        if name in self.fails:
            raise self.fails.pop(name)

    async def create(self, resource: Resource[T], obj: Object) -> T:
        self.created.append(obj["metadata"]["name"])
        self._maybe_fail("create")
        return await super().create(resource, obj)

    async def replace(self, resource: Resource[T], obj: Object, *, subresource: str | None = None) -> T:
        self._maybe_fail("replace")
        return await super().replace(resource, obj, subresource=subresource)

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        self._maybe_fail("get")
        return await super().get(resource, name, namespace)

    async def patch(self, *args: Any, **more: Any) -> Any:
        patched = await super().patch(*args, **more)
        if self.after_patch is not None:
            after, self.after_patch = self.after_patch, None
            await after()
        return patched


async def test_should_leave_a_namespace_alone_that_is_not_there(client: KubeClient) -> None:
    nowhere, groups = GroupName("nowhere", "billing"), Coordinated(is_here=False)
    async with Scripted.of(client) as scripted, showing(scripted, groups) as shown:
        shown.publishing.wanted(nowhere)
        await eventually(lambda: scripted.created == ["billing"], "it is tried")
        await eventually(lambda: not shown.publishing._wanted, "and no more")
        shown.publishing.wanted(nowhere)
        shown.publishing.wanted(GroupName("default", "audit"))
        await eventually(lambda: scripted.created == ["billing", "audit"], "others are created")
        assert nowhere not in shown.publishing._wanted, "nobody gives up an other's place to it"


async def test_should_give_up_whom_nobody_has_wanted_for_long(
    client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = Coordinated(is_here=False)
    monkeypatch.setattr(publishing, "GROUPS_WANTED_MAX", 1)
    monkeypatch.setattr(publishing, "GROUP_WANTED_MS", 60_000)
    async with Scripted.of(client) as scripted, showing(scripted, groups) as shown:
        shown.publishing._wanted[GroupName("default", "first")] = WantedGroup(
            monotonic_ms() + 60_000, GroupType.CONSUMER
        )
        shown.publishing.wanted(GroupName("default", "second"))
        assert [*shown.publishing._wanted] == [("default", "first")], "there is no place"
        shown.publishing._wanted[GroupName("default", "first")] = WantedGroup(monotonic_ms(), GroupType.CONSUMER)
        shown.publishing.wanted(GroupName("default", "second"))
        await eventually(lambda: scripted.created == ["second"], "it is created")


async def test_should_look_again_when_what_was_refused_has_changed(client: KubeClient) -> None:
    groups = Coordinated()
    groups.join("a")
    manifest = {"apiVersion": API_VERSION, "kind": "ConsumerGroup", "metadata": {**GROUP._asdict()}}
    refused = ForbiddenError("no", reason="Forbidden")
    async with Scripted.of(client, create=refused) as scripted, showing(scripted, groups) as shown:
        await eventually(lambda: GROUP in shown.publishing._backoffs, "it is refused")
        assert shown.publishing._backoffs[GROUP].is_long
        await client.create(CONSUMER_GROUPS, manifest)
        await shown.until("it is shown at once", has_members("a"))


async def test_should_go_on_after_a_mistake_about_one_group(
    client: KubeClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mistakes = [ValueError("first"), ValueError("second")]

    def mistaken(*args: Any) -> GroupReport:
        if mistakes:
            raise mistakes.pop()
        return report_of(*args)

    monkeypatch.setattr(publishing, "report_of", mistaken)
    groups = Coordinated()
    groups.join("a")
    stale = {"replace": ConflictError("another was first"), "get": ValueError("third")}
    async with Scripted.of(client, **stale) as scripted, showing(scripted, groups) as shown:
        await replace(shown, client=client).until("it is shown", has_members("a"))
        assert (mistakes, scripted.fails) == ([], {})
        assert "third" in caplog.text


async def test_should_not_leave_to_be_deleted_what_the_operator_holds_again(client: KubeClient) -> None:
    groups = Coordinated()
    groups.join("a")
    async with Scripted.of(client) as scripted, showing(scripted, groups) as shown:
        await shown.until("it is shown", has_members("a"))
        held = {"metadata": {"finalizers": [GROUP_FINALIZER]}}
        scripted.after_patch = lambda: client.patch(CONSUMER_GROUPS, GROUP.name, GROUP.namespace, held)
        groups.die()
        shown.changed()
        await shown.until("it is gone", lambda found: found is None)
        assert scripted.after_patch is None, "it was held in between"


class Unsteady(KubeClient):
    """Fails every other write, whether it has landed or not."""

    count = 0

    async def _request(self, method: str, path: str, **more: object) -> dict[str, object]:
        answer = await super()._request(method, path, **more)  # type: ignore[arg-type]
        Unsteady.count += method != "GET"
        if method != "GET" and Unsteady.count % 2:
            raise ApiUnavailableError("the answer is lost")
        return answer


async def test_should_come_to_the_truth_though_answers_are_lost(client: KubeClient) -> None:
    groups = Coordinated()
    async with Unsteady(client.credentials) as unsteady, showing(unsteady, groups) as shown:
        for name in ("a", "b", "c"):
            groups.join(name)
            shown.changed()
            await shown.until(f"{name} is shown", has_members(*("a", "b", "c")[: len(groups.world.processes)]))
        groups.die()
        shown.changed()
        await shown.until("it is gone", lambda found: found is None)
