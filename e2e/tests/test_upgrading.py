"""Brokers come, go and are replaced by others while clients write and read: nothing that was acknowledged is lost."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import CHECKOUT, in_lab
from e2e.lab.cluster import Lab
from e2e.load.harness import under_load
from e2e.release import Release
from e2e.tests.test_faults import check
from e2e.waiting import wait_for


def test_should_move_replicas_when_brokers_come_and_go(release: Release, figures: dict[str, Any]) -> None:
    with under_load(release, "scaled") as load:
        release.upgrade("--set", "brokers.replicas=4")
        wait_for(lambda: 3 in brokers_of(release, load.topic), "the new broker has its share", 120)
        release.wait_in_sync(load.topic)
        load.wait_progress()
        release.upgrade("--set", "brokers.replicas=3")
        release.kubectl("wait", "--for=delete", f"pod/{release.pod(3)}", "--timeout=180s")
        assert 3 not in brokers_of(release, load.topic)
        check(load, figures, "from three brokers to four, and back")


def brokers_of(release: Release, topic: str) -> set[int]:
    """That hold replicas of it."""
    sets = [each["spec"] for each in release.seen("partitionsets")["items"]]
    partitions = [partition for spec in sets if spec["topic"] == topic for partition in spec["partitions"]]
    return {broker for partition in partitions for broker in partition["replicas"]}


@pytest.fixture
def before(lab: Lab, tmp_path: Path) -> Iterator[tuple[Release, Path]]:
    """The commit before this one, installed in a namespace of its own, and its chart."""
    checkout = tmp_path / "before"
    done = subprocess.run(
        ["git", "-C", str(CHECKOUT), "archive", "--output", str(tmp_path / "before.tar"), "HEAD~1"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"this checkout has no commit before its own: {done.stderr.strip()}")
    checkout.mkdir()
    subprocess.run(["tar", "--extract", "--file", tmp_path / "before.tar", "--directory", checkout], check=True)
    older = in_lab(lab, checkout, ("broker", "operator"), "upgraded")
    chart = checkout / "charts" / "headrace"
    older.install(*SETTINGS, chart=chart)
    yield older, chart
    older.uninstall()


SETTINGS = ("--set", "crds.install=false")
"""Another release has them."""


@pytest.mark.timeout(900)
def test_should_lose_nothing_when_it_is_upgraded_and_rolled_back(
    images: Release, before: tuple[Release, Path], figures: dict[str, Any]
) -> None:
    older, _ = before
    newer = Release(older.cluster, older.namespace, images.images, images.values, images.pull_policy, older.name)
    with under_load(older, "upgraded") as load:
        # Also where both commits make the same images every broker is replaced.
        newer.upgrade(*SETTINGS, "--set", "brokers.podAnnotations.release=newer")
        load.wait_progress()
        newer.rollback()
        check(load, figures, "helm upgrade from the commit before, and helm rollback")
