"""What a broker tells operators of its logs is signed with the seat of its own life."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.control.broker_reports import BrokerReport, Promises
from headrace.core.errors import NotReadyError
from headrace_broker.cluster.reports import LogReports
from headrace_broker.cluster.view import ClusterView
from headrace_broker.metrics import Metrics
from headrace_broker.partition.holdings import Holdings
from headrace_broker.storage.data_directory import DataDirectory
from tests.support.partition_sets import seat


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[LogReports]:
    data = DataDirectory.open(tmp_path / "data")
    yield LogReports(Holdings(data, Metrics()), ClusterView("headrace"), data)
    data.close(clean=True)


async def test_should_sign_nothing_until_the_process_has_an_incarnation(reports: LogReports) -> None:
    with pytest.raises(NotReadyError, match="no incarnation yet"):
        await reports.report()
    with pytest.raises(NotReadyError, match="no incarnation yet"):
        await reports.promises({})


async def test_should_sign_with_the_seat_of_its_own_life(reports: LogReports) -> None:
    reports.seat = seat(0, 7)
    assert await reports.report() == BrokerReport(seat(0, 7), {}, {})
    assert await reports.promises({}) == Promises(seat(0, 7), {})
