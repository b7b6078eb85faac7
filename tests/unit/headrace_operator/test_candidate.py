"""An operator that stands for election while others are faster, and while its Lease cannot be read."""

import asyncio
from contextlib import suppress
from random import Random
from time import monotonic
from typing import Any, cast

import pytest

from headrace.core.limits import API_BACKOFF_MIN_MS
from headrace.core.resources.lease import OperatorLease
from headrace.core.resources.metadata import Metadata
from headrace.kube.errors import ApiError, ConflictError, UnreadableObjectError
from headrace_operator.candidate import OperatorCandidate
from headrace_operator.observer import Scope
from tests.support.patience import patient

VACANT = OperatorLease(Metadata("main-operator", "default", resource_version="1"))


class Api:
    """Refuses with these, one after the other, and then no more."""

    def __init__(self, reads: list[ApiError], writes: list[ApiError]) -> None:
        self.reads, self.writes = reads, writes
        self.looked_s: list[float] = []
        self.candidate = OperatorCandidate(cast("Any", self), Scope("main", "default", 0), "me", Random(1))

    async def get(self, *_: object) -> OperatorLease:
        await asyncio.sleep(0)
        self.looked_s.append(monotonic())
        self.candidate._look.set()  # as when the watch tells of every write of another
        if self.reads:
            raise self.reads.pop(0)
        return VACANT

    async def replace(self, *_: object) -> OperatorLease:
        if self.writes:
            raise self.writes.pop(0)
        return OperatorLease(Metadata("main-operator", "default"), holder="me")


async def elected(api: Api) -> None:
    turn = asyncio.Event()
    standing = asyncio.create_task(api.candidate._stand(turn.set))
    async with asyncio.timeout(patient(30)):
        await turn.wait()
    standing.cancel()
    with suppress(asyncio.CancelledError):
        await standing


async def test_should_not_be_in_a_hurry_where_somebody_else_always_is_faster() -> None:
    api = Api([], [ConflictError("changed")] * 4)
    await elected(api)
    first, *_, last = api.looked_s
    assert len(api.looked_s) == 5
    assert (last - first) * 1000 >= 4 * API_BACKOFF_MIN_MS


async def test_should_go_on_and_say_so_loudly_while_its_lease_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    api = Api([UnreadableObjectError("Lease default/main-operator cannot be read, mend it")], [])
    await elected(api)
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "mend it" in told.getMessage()
