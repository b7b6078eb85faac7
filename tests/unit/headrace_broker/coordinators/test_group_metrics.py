"""What a coordinator tells Prometheus of its groups goes with them, and is bounded."""

import pytest
from prometheus_client import CollectorRegistry

from headrace.core.types import TopicUid
from headrace_broker.coordinators import group_metrics as metrics_module
from headrace_broker.coordinators.group_lag import SeenLag
from headrace_broker.coordinators.group_metrics import GroupMetrics
from tests.support.coordinated import Coordinated
from tests.support.group_world import GROUP, part

FLIGHTS = TopicUid("uid-flights")
BILLING = {"namespace": "default", "group": "billing"}


def seen(*lags: int | None) -> SeenLag:
    partitions = {part("flights", number): lag for number, lag in enumerate(lags)}
    return SeenLag({FLIGHTS: None}, partitions, {FLIGHTS: "flights"})


def test_should_count_what_happens_while_it_coordinates_and_nothing_of_before() -> None:
    registry, groups = CollectorRegistry(), Coordinated()
    metrics = GroupMetrics(registry, groups, lambda _: None)
    groups.join("a")
    metrics.began([GROUP], 0.2)
    groups.join("b")
    metrics.changed(GROUP)
    metrics.changed(GROUP)
    metrics.committed(GROUP, 3)
    metrics.committed(GROUP, 1)
    assert registry.get_sample_value("headrace_group_members", BILLING) == 2
    assert registry.get_sample_value("headrace_group_state", {**BILLING, "state": "Assigning"}) == 1
    assert registry.get_sample_value("headrace_group_state", {**BILLING, "state": "Dead"}) is None
    assert registry.get_sample_value("headrace_group_rebalances_total", BILLING) == 1
    assert registry.get_sample_value("headrace_group_commits_total", BILLING) == 2
    assert registry.get_sample_value("headrace_group_offsets_committed_total", BILLING) == 4
    assert registry.get_sample_value("headrace_coordinator_loading_seconds_sum") == 0.2
    metrics.ended([GROUP])
    metrics.began([GROUP], 0.1)
    assert registry.get_sample_value("headrace_group_commits_total", BILLING) == 0
    groups.die()
    metrics.changed(GROUP)
    assert registry.get_sample_value("headrace_group_members", BILLING) is None
    assert registry.get_sample_value("headrace_groups") == 0


def test_should_show_a_lag_only_where_it_is_known() -> None:
    registry, groups = CollectorRegistry(), Coordinated()
    GroupMetrics(registry, groups, lambda _: seen(7, None))
    groups.join("a")
    first, second = ({**BILLING, "topic": "flights", "partition": number} for number in ("0", "1"))
    assert registry.get_sample_value("headrace_group_lag", first) == 7
    assert registry.get_sample_value("headrace_group_lag_known", first) == 1
    assert registry.get_sample_value("headrace_group_lag", second) is None
    assert registry.get_sample_value("headrace_group_lag_known", second) == 0


def test_should_have_no_more_series_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, groups = CollectorRegistry(), Coordinated()
    GroupMetrics(registry, groups, lambda _: seen(1, 2, 3, None))
    groups.join("a")
    monkeypatch.setattr(metrics_module, "GROUP_LAG_SERIES_MAX", 1)
    assert registry.get_sample_value("headrace_group_lag_left_out") == 3
    monkeypatch.setattr(metrics_module, "GROUPS_IN_METRICS_MAX", 0)
    assert registry.get_sample_value("headrace_groups") == 1
    assert registry.get_sample_value("headrace_group_members", BILLING) is None
