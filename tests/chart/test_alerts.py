"""Each alert fires for what it is about, not for a cluster that is well, and says what to do. With promtool."""

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

CHECKOUT = Path(__file__).parents[2]
RULES = CHECKOUT / "charts" / "headrace" / "files" / "alerts.yaml"
RUNBOOK = CHECKOUT / "docs" / "operations.md"
ONSET_MINUTES = 60
HOURS = 12

BROKER, OPERATOR = 'job="headrace",instance="10.0.0.1:9701"', 'job="headrace",instance="10.0.0.9:9702"'
STANDBY = 'job="headrace",instance="10.0.0.8:9702"'
NEW_OPERATOR = 'job="headrace",instance="10.0.0.7:9702"'
ACTS, STANDS_BY = (f'headrace_operator_acting{{{each},cluster="headrace"}}' for each in (OPERATOR, STANDBY))
OTHER_ACTS = f'headrace_operator_acting{{{NEW_OPERATOR},cluster="other"}}'
GROUP = f'{BROKER},namespace="shop",group="billing"'
PARTITION = f'{GROUP},topic="orders",partition="0"'
WELL: dict[str, str] = {
    ACTS: "1",
    STANDS_BY: "0",
    f"headrace_operator_offline_partitions{{{OPERATOR}}}": "0",
    # What an operator saw when it last acted.
    f"headrace_operator_offline_partitions{{{STANDBY}}}": "7",
    f"headrace_operator_not_preferred_leader_partitions{{{OPERATOR}}}": "0",
    f'headrace_operator_brokers{{{OPERATOR},state="Lost"}}': "0",
    f'headrace_operator_brokers{{{OPERATOR},state="Stopped"}}': "0",
    f'headrace_operator_brokers{{{OPERATOR},state="Gone"}}': "1",
    f"headrace_operator_unclean_leader_elections_total{{{OPERATOR}}}": "0",
    f"headrace_operator_stuck_reconciles{{{OPERATOR}}}": "0",
    f"headrace_operator_stuck_groups{{{OPERATOR}}}": "0",
    f"headrace_operator_unreadable_objects{{{OPERATOR}}}": "0",
    f"headrace_operator_unreadable_groups{{{OPERATOR}}}": "0",
    f"headrace_broker_partitions_led{{{BROKER}}}": "3",
    f"headrace_broker_under_min_isr_partitions{{{BROKER}}}": "0",
    f"headrace_broker_under_replicated_partitions{{{BROKER}}}": "0",
    f"headrace_isr_shrinks_total{{{BROKER}}}": "0",
    f"headrace_broker_disk_full{{{BROKER}}}": "0",
    f'headrace_broker_disk_bytes{{{BROKER},kind="room"}}': "1e9",
    f"headrace_broker_damaged_partitions{{{BROKER}}}": "0",
    f'headrace_broker_fsync_seconds_bucket{{{BROKER},le="0.1"}}': "0+60",
    f'headrace_broker_fsync_seconds_bucket{{{BROKER},le="1"}}': "0+60",
    f'headrace_broker_fsync_seconds_bucket{{{BROKER},le="+Inf"}}': "0+60",
    f"headrace_broker_compaction_damaged_partitions{{{BROKER}}}": "0",
    f"headrace_broker_compaction_failing_partitions{{{BROKER}}}": "0",
    f'headrace_broker_orphaned_partitions{{{BROKER},deletion_policy="Delete"}}': "0",
    f'headrace_broker_orphaned_partitions{{{BROKER},deletion_policy="Retain"}}': "3",
    f'headrace_broker_replication_connects_total{{{BROKER},outcome="failed"}}': "0",
    f'headrace_broker_replication_connects_total{{{BROKER},outcome="ended"}}': "0+1",
    f'headrace_broker_replication_broken_total{{{BROKER},code="CorruptBatch"}}': "0",
    f"headrace_broker_set_writes_undecided{{{BROKER}}}": "0",
    f'headrace_broker_refused_total{{{BROKER},what="requests"}}': "0",
    f"headrace_broker_tls_certificate_expiry_timestamp_seconds{{{BROKER}}}": "1e9",
    f'headrace_broker_tls_reloads_total{{{BROKER},outcome="refused"}}': "0",
    f'headrace_broker_tls_reloads_total{{{BROKER},outcome="loaded"}}': "0+1",
    f"headrace_group_lag{{{PARTITION}}}": "50",
    f"headrace_group_lag_known{{{PARTITION}}}": "1",
    f"headrace_group_offsets_committed_total{{{GROUP}}}": "0+5",
    f"headrace_group_rebalances_total{{{GROUP}}}": "2",
    f"headrace_broker_writer_batches_rolling{{{BROKER}}}": "1",
    f"headrace_broker_writer_records_committed_total{{{BROKER}}}": "0+1000",
}
"""Series, and their value or what they grow by each minute, as `0+5`. Prometheus' clock begins at 0."""


class Trouble(NamedTuple):
    alert: str
    series: dict[str, str]
    """From the onset on, also series that were not there before; what is not here stays as it was."""
    minutes: int
    """After the onset it has fired."""
    also: tuple[str, ...] = ()


TROUBLES = [
    Trouble("HeadracePartitionsOffline", {f"headrace_operator_offline_partitions{{{OPERATOR}}}": "2"}, 2),
    Trouble("HeadraceWritesRefused", {f"headrace_broker_under_min_isr_partitions{{{BROKER}}}": "1"}, 3),
    Trouble("HeadraceRecordsLost", {f"headrace_operator_unclean_leader_elections_total{{{OPERATOR}}}": "1"}, 1),
    Trouble("HeadraceRecordsLost", {f"headrace_operator_unclean_leader_elections_total{{{NEW_OPERATOR}}}": "1"}, 1),
    Trouble("HeadraceNoOperatorActs", {ACTS: "0"}, 3),
    Trouble("HeadraceNoOperatorActs", {ACTS: "0", OTHER_ACTS: "1"}, 3),
    Trouble("HeadraceNoOperatorActs", {STANDS_BY: "1"}, 3, ("HeadracePartitionsOffline",)),
    Trouble("HeadraceNoOperatorActs", {ACTS: "_", STANDS_BY: "_"}, 10),
    Trouble("HeadraceNoOperatorActs", {ACTS: "_", STANDS_BY: "_", OTHER_ACTS: "1"}, 10),
    Trouble("HeadraceBrokerLost", {f'headrace_operator_brokers{{{OPERATOR},state="Lost"}}': "1"}, 6),
    Trouble("HeadraceBrokerStopped", {f'headrace_operator_brokers{{{OPERATOR},state="Stopped"}}': "1"}, 21),
    Trouble("HeadraceUnderReplicated", {f"headrace_broker_under_replicated_partitions{{{BROKER}}}": "4"}, 16),
    Trouble("HeadraceIsrFlaps", {f"headrace_isr_shrinks_total{{{BROKER}}}": "0+3"}, 45),
    Trouble("HeadraceLeaderImbalance", {f"headrace_operator_not_preferred_leader_partitions{{{OPERATOR}}}": "1"}, 361),
    Trouble("HeadraceObjectsRefused", {f"headrace_operator_stuck_reconciles{{{OPERATOR}}}": "1"}, 6),
    Trouble("HeadraceObjectsRefused", {f"headrace_operator_stuck_groups{{{OPERATOR}}}": "1"}, 6),
    Trouble("HeadraceObjectsUnreadable", {f"headrace_operator_unreadable_objects{{{OPERATOR}}}": "1"}, 6),
    Trouble("HeadraceDiskFull", {f"headrace_broker_disk_full{{{BROKER}}}": "1"}, 1),
    Trouble("HeadraceDiskFillsUp", {f'headrace_broker_disk_bytes{{{BROKER},kind="room"}}': "1e9-5e6"}, 95),
    Trouble("HeadraceDataDamaged", {f"headrace_broker_damaged_partitions{{{BROKER}}}": "1"}, 16),
    Trouble("HeadraceDiskSlow", {f'headrace_broker_fsync_seconds_bucket{{{BROKER},le="0.1"}}': "60+1"}, 25),
    Trouble("HeadraceCompactionFails", {f"headrace_broker_compaction_failing_partitions{{{BROKER}}}": "1"}, 61),
    Trouble(
        "HeadraceDataOrphaned",
        {f'headrace_broker_orphaned_partitions{{{BROKER},deletion_policy="Delete"}}': "2"},
        61,
    ),
    Trouble(
        "HeadraceLeadersUnreachable",
        {f'headrace_broker_replication_connects_total{{{BROKER},outcome="failed"}}': "0+2"},
        20,
    ),
    Trouble(
        "HeadraceReplicationBroken",
        {f'headrace_broker_replication_broken_total{{{BROKER},code="CorruptBatch"}}': "0+1"},
        35,
    ),
    Trouble("HeadraceApiAnswersLost", {f"headrace_broker_set_writes_undecided{{{BROKER}}}": "1"}, 6),
    Trouble("HeadraceOverloaded", {f'headrace_broker_refused_total{{{BROKER},what="requests"}}': "0+9"}, 15),
    Trouble(
        "HeadraceCertificateExpires",
        {f"headrace_broker_tls_certificate_expiry_timestamp_seconds{{{BROKER}}}": str(6 * 86400)},
        61,
    ),
    Trouble("HeadraceCertificateRefused", {f'headrace_broker_tls_reloads_total{{{BROKER},outcome="refused"}}': "1"}, 1),
    Trouble("HeadraceGroupStalled", {f"headrace_group_offsets_committed_total{{{GROUP}}}": "300"}, 25),
    Trouble("HeadraceGroupFallsBehind", {f"headrace_group_lag{{{PARTITION}}}": "50+10"}, 95),
    Trouble("HeadraceGroupLagUnknown", {f"headrace_group_lag_known{{{PARTITION}}}": "0"}, 11),
    Trouble("HeadraceGroupRebalancing", {f"headrace_group_rebalances_total{{{GROUP}}}": "2+4"}, 35),
    Trouble("HeadraceCommitStalled", {f"headrace_broker_writer_records_committed_total{{{BROKER}}}": "60000"}, 25),
]


class Calm(NamedTuple):
    """What nobody is to be told of."""

    name: str
    series: dict[str, str]
    """From the onset on, in promtool's own notation."""


FOR_EVER = f"x{HOURS * 60}"
CALMS = [
    Calm("two clusters under one job", {OTHER_ACTS: f"1{FOR_EVER}"}),
    Calm(
        "another operator takes over",
        {
            ACTS: f"0 _{FOR_EVER}",
            STANDS_BY: f"1{FOR_EVER}",
            f"headrace_operator_offline_partitions{{{STANDBY}}}": f"0{FOR_EVER}",
        },
    ),
    # Ten brokers, half a minute each, of which every look finds one away.
    Calm(
        "an upgrade",
        {
            f'headrace_operator_brokers{{{OPERATOR},state="Stopped"}}': f"1x5 0{FOR_EVER}",
            f"headrace_isr_shrinks_total{{{BROKER}}}": f"0+100x5 500{FOR_EVER}",
            f"headrace_broker_under_replicated_partitions{{{BROKER}}}": f"100x8 0{FOR_EVER}",
            f'headrace_broker_replication_broken_total{{{BROKER},code="CorruptBatch"}}': f"1x5 2{FOR_EVER}",
        },
    ),
    Calm("an upgrade of a group's members", {f"headrace_group_rebalances_total{{{GROUP}}}": f"2+30x4 122{FOR_EVER}"}),
    Calm(
        "data is kept as asked",
        {f'headrace_broker_orphaned_partitions{{{BROKER},deletion_policy="Retain"}}': f"9{FOR_EVER}"},
    ),
    Calm("a broker is scaled away", {f'headrace_operator_brokers{{{OPERATOR},state="Gone"}}': f"2{FOR_EVER}"}),
    Calm("all of it is uninstalled", dict.fromkeys(WELL, f"_{FOR_EVER}")),
]
FRESH = {name: value for name, value in WELL.items() if "group" not in name and "writer" not in name} | {
    f"headrace_broker_partitions_led{{{BROKER}}}": "0"
}
"""No topic, no group."""


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def steps(value: str, minutes: int) -> str:
    """In promtool's notation: as many as there are minutes."""
    return f"_x{minutes}" if value == "_" else f"{value}x{minutes - 1}"


def promtool(tmp_path: Path, series: dict[str, str], expected: list[dict[str, Any]]) -> None:
    given = [{"series": name, "values": values} for name, values in series.items()]
    tests = [{"interval": "1m", "input_series": given, "promql_expr_test": expected}]
    file = tmp_path / "alerts.test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def firing(minutes: int, alerts: tuple[str, ...]) -> dict[str, Any]:
    return {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{minutes}m",
        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts],
    }


def test_should_be_silent_when_the_cluster_is_well(tmp_path: Path) -> None:
    series = {name: steps(value, HOURS * 60) for name, value in WELL.items()}
    promtool(tmp_path, series, [firing(minutes, ()) for minutes in range(30, HOURS * 60, 30)])


def metric(series: str) -> str:
    return series.partition("{")[0]


def since_onset(changed: dict[str, str]) -> dict[str, str]:
    """All series: well until the onset, and where they are not in `changed` also then."""
    before = {name: steps(WELL.get(name, "_"), ONSET_MINUTES) for name in changed}
    well = {name: steps(value, HOURS * 60) for name, value in WELL.items()}
    return well | {name: f"{before[name]} {values}" for name, values in changed.items()}


def every_minute(alerts: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return [firing(minutes, alerts) for minutes in range(1, HOURS * 60)]


@pytest.mark.parametrize("calm", CALMS, ids=lambda calm: calm.name)
def test_should_be_silent_about_what_is_meant_to_be(calm: Calm, tmp_path: Path) -> None:
    assert {metric(name) for name in calm.series} <= {metric(name) for name in WELL}
    promtool(tmp_path, since_onset(calm.series), every_minute())


@pytest.mark.parametrize("operators", [True, False], ids=["all is scraped", "brokers alone are scraped"])
def test_should_be_silent_about_a_fresh_install(operators: bool, tmp_path: Path) -> None:
    scraped = {name: value for name, value in FRESH.items() if operators or "operator" not in name}
    promtool(tmp_path, {name: steps(value, HOURS * 60) for name, value in scraped.items()}, every_minute())


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.alert)
def test_should_fire_for_its_trouble_alone(trouble: Trouble, tmp_path: Path) -> None:
    assert {metric(name) for name in trouble.series} <= {metric(name) for name in WELL}
    series = since_onset({name: steps(value, HOURS * 60) for name, value in trouble.series.items()})
    fired = tuple(sorted((trouble.alert, *trouble.also)))
    promtool(tmp_path, series, [firing(ONSET_MINUTES - 1, ()), firing(ONSET_MINUTES + trouble.minutes, fired)])


def test_should_have_a_trouble_for_each_alert() -> None:
    assert {trouble.alert for trouble in TROUBLES} == {rule["alert"] for rule in rules()}


def test_should_say_what_to_do_about_each_alert() -> None:
    titles = [line.removeprefix("### ") for line in RUNBOOK.read_text().splitlines() if line.startswith("### Headrace")]
    assert sorted(titles) == sorted(rule["alert"] for rule in rules())
