"""A broker takes its Lease as soon as the API server answers, and takes nothing of its own for another life."""

import asyncio
import logging
import threading
from dataclasses import replace
from typing import Any, cast

import pytest

from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.metadata import Object
from headrace.core.types import BrokerId, Incarnation
from headrace.kube.client import Listing
from headrace.kube.errors import (
    ApiError,
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
)
from headrace_broker.cluster.lease import LeaseHolder, Taken, vacant_lease
from headrace_broker.metrics import Metrics
from tests.support.patience import patient

AWAY = ApiUnavailableError("nobody answers")
VACANT = vacant_lease(BrokerId(0), "default", "headrace", "http://0", "")


class Api:
    """Holds one Lease. The first `reads` and `writes` fail; what fails and is `late` lands all the same."""

    def __init__(self, *, reads: int = 0, writes: int = 0, late: bool = False) -> None:
        self.reads, self.writes, self.late = reads, writes, late
        self.refusal: ApiError = AWAY
        self.lease: BrokerLease | None = None
        self.faster: BrokerLease | None = None
        """Lands while a write fails."""
        self.version = 0

    async def list(self, *_: object) -> Listing[Any]:
        return Listing((), "1")

    async def get(self, *_: object) -> BrokerLease:
        if self.reads:
            self.reads -= 1
            raise self.refusal
        if self.lease is None:
            raise NotFoundError("no such Lease")
        return self.lease

    async def replace(self, _: object, obj: Object) -> BrokerLease:
        if obj["metadata"]["resourceVersion"] != str(self.version):
            raise ConflictError("somebody was faster")
        return await self.create(None, obj)

    async def create(self, _: object, obj: Object) -> BrokerLease:
        fails, self.writes = self.writes > 0, max(0, self.writes - 1)
        if not fails or self.late:
            self.land(BrokerLease.parse(obj))
        if fails:
            if self.faster is not None:
                self.land(self.faster)
            raise AWAY
        assert self.lease is not None
        return self.lease

    def land(self, lease: BrokerLease) -> None:
        self.version += 1
        self.lease = replace(lease, metadata=replace(lease.metadata, resource_version=str(self.version)))


def holder(api: Api) -> LeaseHolder:
    return LeaseHolder(cast("Any", api), Metrics(), VACANT)


async def taken(api: Api, on_disk: int = 0) -> tuple[Taken, list[tuple[int, int]]]:
    """And what was put on disk."""
    written: list[tuple[int, int]] = []
    took = await holder(api).acquire(Incarnation(on_disk), lambda *each: written.append(each))
    return took, written


async def test_should_wait_for_an_api_server_that_is_away_and_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert await taken(Api(reads=3)) == ((1, 0), [(1, 0)])
    assert caplog.messages == ["waiting for the API server to take the lease: nobody answers"]


async def test_should_count_no_life_of_its_own_that_it_did_not_hear_of() -> None:
    late = Api(writes=2, late=True)
    assert await taken(late, on_disk=4) == ((7, 0), [(5, 0), (6, 0), (7, 0)])
    assert late.lease is not None
    assert late.lease.incarnation == 7
    assert await taken(Api(writes=1), on_disk=4) == ((6, 0), [(5, 0), (6, 0)])


async def test_should_count_the_life_of_another_beside_what_it_did_not_hear_of() -> None:
    api = Api(writes=1)
    api.faster = replace(VACANT, incarnation=Incarnation(5), renew_time="of another process")
    assert await taken(api, on_disk=4) == ((6, 5), [(5, 0), (6, 5)])


async def test_should_not_wait_where_it_is_refused() -> None:
    api = Api(reads=1)
    api.refusal = ForbiddenError("no rights on Leases")
    with pytest.raises(ForbiddenError):
        await taken(api)


async def test_should_end_a_write_to_the_disk_before_it_is_cancelled() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def write(*_: Incarnation) -> None:
        begun.set()
        may_end.wait(patient(10))
        ended.set()

    taking = asyncio.create_task(holder(Api()).acquire(Incarnation(0), write))
    await asyncio.to_thread(begun.wait, 10)
    taking.cancel()
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.wait([taking])
    assert taking.cancelled()
    assert ended.is_set()
