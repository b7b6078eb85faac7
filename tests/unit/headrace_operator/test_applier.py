"""Writes for groups as they leave: each a compare-and-set, told of once, and none while another operator acts."""

import asyncio
from typing import Any, cast

import pytest

from headrace.core.control.actions import (
    CreateTopic,
    GroupAction,
    Notice,
    PatchStatus,
    PatchTopic,
    ReleaseTopic,
    SetGroupFinalizers,
    WriteGroupStatus,
)
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.kube.client import Listing
from headrace.kube.errors import AlreadyExistsError, ApiBusyError, ApiError, ApiUnavailableError, ForbiddenError
from headrace_operator.applier import GroupApplier, Outcome
from tests.support.control import topic
from tests.support.group_control import group
from tests.support.waiting import eventually

TOPIC = topic("headrace-offsets", metadata={"resource_version": "7"})
GROUP = group(metadata={"resource_version": "5"})
RELEASE = ReleaseTopic(TOPIC, ("other",), "nobody needs it")


class Api:
    """Client and recorder in one."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any, str | None]] = []
        self.created: list[Any] = []
        self.events: list[tuple[str, str]] = []
        self.groups: Listing[ConsumerGroup] = Listing((), "1")
        self.error: ApiError | None = None
        self.errors: dict[str, ApiError] = {}
        """By namespace and name."""

    async def patch(self, _: object, name: str, namespace: str, patch: Any, *, subresource: str | None = None) -> Any:
        error = self.errors.get(f"{namespace}/{name}", self.error)
        if error is not None:
            raise error
        self.patches.append((f"{namespace}/{name}", patch, subresource))
        return GROUP

    async def create(self, _: object, manifest: Any) -> Any:
        if self.error is not None:
            raise self.error
        self.created.append(manifest)

    async def list(self, _: object) -> Listing[ConsumerGroup]:
        return self.groups

    async def record(self, regarding: Any, kind: str, reason: str, _: str) -> None:
        self.events.append((regarding.metadata.name, f"{kind} {reason}"))


class Applying:
    def __init__(self) -> None:
        self.api, self.acts, self.turn = Api(), True, asyncio.Event()
        self.turn.set()
        self.landed: list[GroupAction] = []
        fake = cast("Any", self.api)
        self.applier = GroupApplier(fake, fake, lambda: self.acts, self.turn)

    async def groups(self, *actions: GroupAction) -> list[Outcome]:
        return await self.applier.apply_groups(actions, lambda action, _: self.landed.append(action))


async def test_should_write_only_on_what_was_seen() -> None:
    applying = Applying()
    status = WriteGroupStatus(GROUP, "x", (Notice("Rebalanced", "epoch 1"), Notice("ResetWaits", "m1", warning=True)))
    assert await applying.groups(SetGroupFinalizers(GROUP, ("a",), "x"), status) == [Outcome.DONE] * 2
    assert applying.api.patches == [
        ("default/billing", {"metadata": {"resourceVersion": "5", "finalizers": ["a"]}}, None),
        ("default/billing", {"metadata": {"resourceVersion": "5"}, "status": GROUP.status.to_object()}, "status"),
    ]
    assert applying.api.events == [("billing", "Normal Rebalanced"), ("billing", "Warning ResetWaits")]
    assert len(applying.landed) == 2
    await applying.groups(status)
    assert len(applying.api.events) == 2, "people have just heard it"


async def test_should_write_the_topic_only_as_it_was_seen() -> None:
    applying = Applying()
    apply = applying.applier.apply_topic
    assert await apply(CreateTopic({"kind": "Topic"}, "x")) is Outcome.DONE
    labels = {"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 3}}
    assert await apply(PatchTopic(TOPIC, labels, "x", (Notice("Restored", "y", warning=True),))) is Outcome.DONE
    assert await apply(PatchTopic(TOPIC, {"spec": {"replicas": 3}}, "x")) is Outcome.DONE
    assert await apply(PatchStatus(TOPIC, {"conditions": []}, "x")) is Outcome.DONE
    assert await apply(RELEASE) is Outcome.DONE
    assert applying.api.created == [{"kind": "Topic"}]
    version = {"resourceVersion": "7"}
    assert [(patch, part) for _, patch, part in applying.api.patches] == [
        ({"metadata": {"labels": {"a": "b"}, **version}, "spec": {"replicas": 3}}, None),
        ({"metadata": version, "spec": {"replicas": 3}}, None),
        ({"metadata": version, "status": {"conditions": []}}, "status"),
        ({"metadata": {**version, "finalizers": ["other"]}}, None),
    ]
    assert applying.api.events == [("headrace-offsets", "Warning Restored")]


@pytest.mark.parametrize("groups", [Listing((group(),), "1"), Listing((), "1", left_out=1)])
async def test_should_not_let_go_of_offsets_that_may_be_somebodys(groups: Listing[ConsumerGroup]) -> None:
    applying = Applying()
    applying.api.groups = groups
    assert await applying.applier.apply_topic(RELEASE) is Outcome.OVERTAKEN
    assert applying.api.patches == []


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(AlreadyExistsError("x"), Outcome.OVERTAKEN), (ForbiddenError("x"), Outcome.REFUSED)],
)
async def test_should_say_what_came_of_it(error: ApiError, outcome: Outcome) -> None:
    applying = Applying()
    applying.api.error = error
    assert await applying.groups(WriteGroupStatus(GROUP, "x", (Notice("Rebalanced", "y"),))) == [outcome]
    assert await applying.applier.apply_topic(CreateTopic({}, "x")) is outcome
    assert (applying.landed, applying.api.events) == ([], [])


@pytest.mark.parametrize("error", [ApiUnavailableError("HTTP timeout"), ApiBusyError("etcd: request is too large")])
async def test_should_say_which_group_could_not_be_written_where_others_could(error: ApiError) -> None:
    applying = Applying()
    applying.api.errors["default/huge"] = error
    outcomes = await applying.groups(WriteGroupStatus(group("huge"), "x"), WriteGroupStatus(GROUP, "x"))
    assert outcomes == [Outcome.BUSY, Outcome.DONE]


async def test_should_raise_where_the_api_server_is_away() -> None:
    applying = Applying()
    applying.api.error = ApiUnavailableError("away")
    with pytest.raises(ApiUnavailableError):
        await applying.groups(WriteGroupStatus(GROUP, "x"))
    with pytest.raises(ApiUnavailableError):
        await applying.applier.apply_topic(CreateTopic({}, "x"))
    applying.api.error = ApiBusyError("not now")
    assert await applying.groups(WriteGroupStatus(GROUP, "x")) == [Outcome.BUSY]
    assert await applying.applier.apply_topic(CreateTopic({}, "x")) is Outcome.BUSY


async def test_should_write_nothing_once_another_acts() -> None:
    applying = Applying()
    applying.acts = False
    assert await applying.groups(WriteGroupStatus(GROUP, "x")) == [Outcome.OVERTAKEN]
    assert applying.api.patches == []


async def test_should_let_elections_go_first() -> None:
    applying = Applying()
    applying.turn.clear()
    writing = asyncio.create_task(applying.groups(WriteGroupStatus(GROUP, "x")))
    other = asyncio.create_task(asyncio.sleep(0))
    await other
    assert applying.api.patches == []
    applying.turn.set()
    await eventually(writing.done, "it is written")
    assert len(applying.api.patches) == 1
