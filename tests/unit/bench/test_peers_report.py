"""The comparison with Kafka: medians, ratios, tables, and what its clients' output says."""

import pytest

from bench.peers import java_client
from bench.peers.cases import (
    FULL,
    HEADRACE_REPLICATED_TOPICS,
    HEADRACE_TOPICS,
    KAFKA_REPLICATED_TOPICS,
    KAFKA_TOPICS,
    SHORT,
    Case,
    Client,
    cases,
    replicated_cases,
    single_cases,
)
from bench.peers.errors import PeersError
from bench.peers.figures import Figure, Idle, Measured, Rounds, Started, median, peak_bytes
from bench.peers.job import Answer, Job, Work, timed
from bench.peers.pages import BEGIN, END, put_into
from bench.peers.report import Results, as_json, as_markdown
from bench.peers.targets import outcomes, server_outcomes

ALL_CASES = [case for group in cases() for case in group]
MIB = 1 << 20


def measured(case: Case, *, seconds: float = 1.0, broker_mib: int = 100) -> Measured:
    waits = case.work in (Work.ROUND_TRIP, Work.MANY_PRODUCERS)
    return Measured(
        records=1000,
        seconds=seconds,
        p50_ms=seconds if waits else None,
        p99_ms=2 * seconds if waits else None,
        client_cpu_s=0.5,
        client_peak_bytes=50 * MIB,
        broker_cpu_s=0.25,
        broker_peak_bytes=broker_mib * MIB,
    )


def rounds_of(*seconds: float) -> Rounds:
    """Rounds in which the SDK takes one second for everything, and every client of Kafka so many."""
    return [
        {case.key: measured(case, seconds=each if case.client.is_of_kafka else 1.0) for case in ALL_CASES}
        for each in seconds
    ]


def results(rounds: Rounds) -> Results:
    kafka = Started(ready_s=3.0, acknowledged_s=3.2, idle=Idle(400 * MIB, 0.03))
    headrace = Started(ready_s=0.9, acknowledged_s=1.6, idle=Idle(60 * MIB, 0.01))
    return Results(rounds, SHORT, kafka, headrace, Idle(110 * MIB, 0.001), {"processors": "2 x some"})


def test_should_do_every_case_once_on_topics_that_are_made() -> None:
    assert len({case.key for case in ALL_CASES}) == len(ALL_CASES)
    scenes = (
        (single_cases(), KAFKA_TOPICS, HEADRACE_TOPICS),
        (replicated_cases(), KAFKA_REPLICATED_TOPICS, HEADRACE_REPLICATED_TOPICS),
    )
    for groups, kafka, headrace in scenes:
        for case in (case for group in groups for case in group):
            assert case.topic in (kafka if case.client.is_of_kafka else headrace), case.key
            assert 0 < SHORT.records(case) < FULL.records(case)


def test_should_read_what_was_written_before_in_the_same_round() -> None:
    written = set[tuple[bool, str]]()
    for group in cases():
        read = {(case.client.is_of_kafka, case.topic) for case in group if case.work is Work.CONSUME}
        assert read <= written
        written |= {(case.client.is_of_kafka, case.topic) for case in group if case.work is Work.PRODUCE}


def test_should_take_the_median_of_rounds_as_records_a_second() -> None:
    key = next(case.key for case in ALL_CASES if case.client is Client.JAVA)
    assert median(rounds_of(2.0, 100.0, 4.0), key, Figure.RATE) == pytest.approx(250)


def test_should_take_the_most_of_all_cases_as_the_peak_of_a_round() -> None:
    first, second = ALL_CASES[0], ALL_CASES[1]
    rounds = [
        {first.key: measured(first, broker_mib=high), second.key: measured(second, broker_mib=5)} for high in (7, 3, 9)
    ]
    assert peak_bytes(rounds, [first.key, second.key]) == 7 * MIB


def test_should_meet_targets_of_rates_from_below_and_of_times_from_above() -> None:
    slower = {(each.label, each.beside): each for each in outcomes(rounds_of(3.0))}
    assert slower["send_batch, 100 B", "Kafka, Java"].ratio == pytest.approx(3.0)
    assert slower["send_batch, 100 B", "Kafka, Java"].is_met
    assert not slower["send_batch, 100 B", "Kafka, confluent-kafka"].is_met
    assert slower["round trip, p50", "Kafka, Java"].ratio == pytest.approx(1 / 3)
    assert slower["round trip, p50", "Kafka, Java"].is_met
    faster = {(each.label, each.beside): each for each in outcomes(rounds_of(0.4))}
    assert not faster["round trip, p99", "Kafka, Java"].is_met
    assert not faster["many producers, fsync, 1 kB", "Kafka, Java, flush.messages=1"].is_met


def test_should_compare_with_the_better_settings_of_a_peer() -> None:
    rounds = [dict(one) for one in rounds_of(3.0)]
    default = next(case for case in ALL_CASES if case.client is Client.JAVA and case.how == "default")
    rounds[0][default.key] = measured(default, seconds=0.5)
    assert outcomes(rounds)[0].ratio == pytest.approx(0.5)


def test_should_compare_servers_by_memory_and_start() -> None:
    given = results(rounds_of(1.0))
    found = {each.label: each for each in server_outcomes(given.rounds, given.kafka, given.headrace)}
    assert found["broker RSS, idle"].ratio == pytest.approx(0.15)
    assert found["broker RSS, idle"].is_met
    assert found["start to ready"].is_met
    assert not found["start to first acknowledged record"].is_met
    assert not found["broker RSS, peak under that load"].is_met


def test_should_render_a_row_for_each_case_and_target() -> None:
    page = as_markdown(results(rounds_of(2.0)))
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert all(any(case.client in row and case.how in row for row in rows) for case in ALL_CASES)
    assert "| send_batch, 100 B | Kafka, Java | 1,000 records/s | 500 records/s | 2.00 | ≥ 3 | **no** |" in rows
    assert "| broker RSS, idle | Kafka | 60 MiB | 400 MiB | 0.15 | ≤ 0.2 | yes |" in rows
    assert len(as_json(results(rounds_of(2.0)))["targets"]) == sum("| yes |" in r or "| **no** |" in r for r in rows)


def test_should_put_tables_between_the_marks_of_a_page_again_and_again() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = put_into(page, "| new |\n")
    assert once == f"before\n{BEGIN}\n\n| new |\n\n{END}\nafter\n"
    assert put_into(once, "| new |\n") == once
    with pytest.raises(PeersError, match="no lines"):
        put_into("a page of something else", "| new |\n")


def test_should_read_the_figures_of_kafkas_own_tools() -> None:
    produced = "\n".join(
        (
            "100 records sent, 20.0 records/sec (0.01 MB/sec), 1.0 ms avg latency, 2.0 ms max latency.",
            "500 records sent, 250.0 records/sec (0.02 MB/sec), 1.0 ms avg latency, 2.0 ms max latency, 1 ms 50th.",
        )
    )
    assert java_client.parse(Work.PRODUCE, produced) == Answer(500, 2.0)
    consumed = "2026-11-22 02:00:00:000, 2026-11-22 02:00:05:000, 95.4, 19.1, 1000000, 200000.0, 3000, 2000, 47.7, 5e5"
    assert java_client.parse(Work.CONSUME, consumed) == Answer(1_000_000, 2.0)
    for work in (Work.PRODUCE, Work.CONSUME):
        with pytest.raises(PeersError, match="gave no figures"):
            java_client.parse(work, "")


def test_should_carry_jobs_and_answers_between_processes() -> None:
    job = Job(Work.ROUND_TRIP, "127.0.0.1:1", "waiting", "payloads", 10, {"acks": 1})
    assert Job.parse(job.to_argument()) == job
    given = timed(4, [0.001, 0.002, 0.003, 0.004], 0.01)
    assert Answer.parse(f"a warning\n{given.to_line()}\n") == given
    assert given.p50_ms == pytest.approx(2.5)
