"""What the loop says when its notes do not fit on the disk."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.core.errors import DiskFullError
from headrace_broker.cluster.reconciler import HoldingsReconciler
from tests.support.partition_sets import partition_set, partition_state, seat


async def test_should_say_which_of_its_notes_a_full_disk_does_not_take(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> None:
        raise DiskFullError("no room")

    async def remember() -> None:
        return None

    giving_away = SimpleNamespace(notes={}, is_behind=True, write=refuse)
    view = cast("Any", SimpleNamespace(changed=SimpleNamespace(set=lambda: None)))
    holdings = cast("Any", SimpleNamespace(giving_away=giving_away, held=dict))
    writing = cast("Any", SimpleNamespace(remember=remember, regressed=frozenset()))
    reconciler = HoldingsReconciler(seat(0), view, holdings, cast("Any", None), writing, cast("Any", None))
    with caplog.at_level(logging.ERROR):
        await reconciler._remember([partition_set(partition_state(leader=seat(0)))])
    assert "what is given away" in caplog.text
    assert "new leaders" not in caplog.text
