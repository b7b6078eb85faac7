"""The file behind the embedded API: its user's alone, for there are Secrets in it.

The bounded history: complete above its oldest revision, and honest below.
"""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dev.api.objects import GroupResource
from headrace.dev.api.status import StatusError
from headrace.dev.api.store import ChangeType, History, ObjectChange, ResourceHistory, Store


def test_should_keep_its_files_to_its_user_also_those_that_were_not(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for name in ("state", "state-wal"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
    store = Store(path)
    assert {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}.keys() >= {"state"}
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    store.close()


_TOPICS = GroupResource("headrace.io", "topics")


def _change(revision: int, size_bytes: int = 1) -> ObjectChange:
    return ObjectChange(revision, ChangeType.MODIFIED, {}, None, size_bytes)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40)), max_size=60), st.integers(0, 200))
def test_should_give_all_changes_after_a_revision_or_refuse(steps: list[tuple[int, int]], asked: int) -> None:
    history, revision, all_changes = ResourceHistory(10, changes_max=8, bytes_max=100), 10, []
    for step, size_bytes in steps:
        revision += step
        all_changes.append(_change(revision, size_bytes))
        history.record(all_changes[-1])

    if asked < history.oldest:
        with pytest.raises(StatusError) as refused:
            history.since(asked)
        assert (refused.value.code, refused.value.reason) == (410, "Expired")
    else:
        assert history.since(asked) == [change for change in all_changes if change.revision > asked]
    assert len(history.since(history.oldest)) <= 8


def test_should_keep_the_newest_change_whatever_it_weighs() -> None:
    history = ResourceHistory(0, changes_max=8, bytes_max=10)
    history.record(_change(1, 5))
    history.record(_change(2, 1000))
    assert [change.revision for change in history.since(history.oldest)] == [2]


async def test_should_wake_those_who_watch_the_resource_or_all() -> None:
    history = History(0)
    with history.watching(_TOPICS) as topics, history.watching(GroupResource("", "pods")) as pods:
        with history.watching(None) as everything:
            history.record(_TOPICS, _change(1))
            assert (topics.is_set(), pods.is_set(), everything.is_set()) == (True, False, True)
        history.close()
        assert pods.is_set()
        assert history.closed
        assert isinstance(pods, asyncio.Event)
