"""Ends a load: nothing that clients were promised is missing, and replicas hold the same. Notes what was measured."""

from collections.abc import Mapping
from typing import Any

from e2e.lab.cluster import Lab
from e2e.load.harness import Load
from e2e.load.verdict import Verdict
from tests.faults.disks import batches_below
from tests.faults.history import History
from tests.faults.judge import judge

UNAVAILABLE_S_MAX = 60
"""Figures say what a failover takes. After so long nobody has taken over, whatever the machine does besides."""


def check(load: Load, figures: dict[str, Any], name: str) -> None:
    """End the load: nothing is wrong. What clients waited for is noted."""
    load.wait_progress()
    load.release.wait_in_sync(load.topic)
    verdict = load.end()
    assert verdict.wrong == []
    assert verdict.lost == verdict.duplicated == 0
    assert verdict.acknowledged > 0
    assert max(verdict.unavailability_s.values()) < UNAVAILABLE_S_MAX, verdict
    if isinstance(load.release.cluster, Lab):
        load.release.wait_in_sync(load.topic)
        assert differences(load.release.cluster, load, verdict) == []
    figures[name] = {
        "acknowledged": verdict.acknowledged,
        "longest_without_acknowledgement_s": _rounded(verdict.unavailability_s),
        "longest_without_an_answer_to_readers_s": _rounded(verdict.silence_s),
    }


def differences(lab: Lab, load: Load, verdict: Verdict) -> list[str]:
    """Between the disks of the replicas, which are in sync, below the high watermark."""
    release = load.release
    uid = release.seen("topic", load.topic)["metadata"]["uid"]
    found: dict[int, dict[str, dict[int, bytes]]] = {}
    missing = []
    for partition, brokers in release.replicas(load.topic).items():
        found[partition] = {}
        for pod in map(release.pod, brokers):
            data = lab.volume(f"data-{pod}", release.namespace)
            log = batches_below(data, uid, partition, verdict.ends[str(partition)])
            if log:
                found[partition][pod] = log
            else:
                missing.append(f"{pod} holds nothing of partition {partition}")
    return [*missing, *map(str, judge(History(replicas=found)).findings)]


def _rounded(by_partition: Mapping[str, float]) -> dict[str, float]:
    return {partition: round(seconds, 1) for partition, seconds in by_partition.items()}
