"""What brokers are told of ConsumerGroups, and what it means where one of them cannot be read, or obeyed."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from headrace.core.groups.identity import GroupName, GroupSettings
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.resources.metadata import Metadata
from headrace.kube.resource import ObjectKey
from headrace.kube.watch import Changed, Listed, Removed, Unreadable, WatchEvent
from headrace_broker.coordinators import consumer_groups
from headrace_broker.coordinators.consumer_groups import GroupWatching, KnownGroups
from tests.support.coordinated import Coordinated

BILLING, AUDIT = (GroupName("default", name) for name in ("billing", "audit"))
NOBODY: Any = None


def resource(group: GroupName) -> ConsumerGroup:
    return ConsumerGroup(Metadata(group.name, group.namespace, uid=f"uid-{group.name}"))


class Watched:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, groups: Coordinated) -> None:
        self.groups, self.known = groups, KnownGroups()
        self.changes: list[GroupName] = []
        self._watching = GroupWatching(NOBODY, "headrace", self.known, groups)
        self._watching.on_change = self.changes.append
        self._events: Sequence[WatchEvent[ConsumerGroup]] = ()
        monkeypatch.setattr(consumer_groups, "watch", lambda *_: self._watch())

    async def _watch(self) -> AsyncIterator[WatchEvent[ConsumerGroup]]:
        for event in self._events:
            yield event

    async def see(self, *events: WatchEvent[ConsumerGroup]) -> None:
        self._events = events
        await self._watching.run()


async def test_should_not_take_for_gone_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    watched, key = Watched(monkeypatch, Coordinated()), ObjectKey(*BILLING)
    settings = watched.groups.settings
    await watched.see(Listed((resource(BILLING), resource(AUDIT))))
    assert {*settings} == {BILLING, AUDIT}
    await watched.see(Listed((resource(AUDIT),), (key, ObjectKey("default", "never-seen"))), Unreadable(key))
    assert settings[BILLING] is not None, "as it was when it could be read"
    assert watched.known.find(BILLING) == resource(BILLING)
    await watched.see(Unreadable(key, is_gone=True), Unreadable(key, is_gone=True))
    assert (settings[BILLING], watched.known.find(BILLING), watched.changes) == (None, None, [BILLING])
    await watched.see(Listed(()))
    assert settings[AUDIT] is None


class Mistaken(Coordinated):
    def configure(self, group: GroupName, settings: GroupSettings | None) -> None:
        if group == BILLING:
            raise ValueError("a mistake")
        super().configure(group, settings)


async def test_should_go_on_after_a_mistake_about_one_group(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(monkeypatch, Mistaken())
    await watched.see(Listed((resource(BILLING), resource(AUDIT))), Changed(resource(BILLING)))
    assert [*watched.groups.settings] == [AUDIT]
    assert "default/billing: its ConsumerGroup is not obeyed" in caplog.text
    await watched.see(Removed(resource(AUDIT)))
    assert watched.groups.settings[AUDIT] is None
