"""Brokers come, go and are replaced by others while clients write and read: nothing that was acknowledged is lost."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.lab.cluster import Lab
from e2e.load.harness import under_load
from e2e.load.judging import check
from e2e.release import CHECKOUT, Release
from e2e.releasing import in_lab
from e2e.waiting import wait_for
from tests.support.tools import cannot_run


def test_should_move_replicas_when_brokers_come_and_go(release: Release, figures: dict[str, Any]) -> None:
    def brokers_of(topic: str) -> set[int]:
        return {broker for brokers in release.replicas(topic).values() for broker in brokers}

    with under_load(release, "scaled") as load:
        release.upgrade("--set", "brokers.replicas=4")
        wait_for(lambda: 3 in brokers_of(load.topic), "the new broker has its share", 120)
        release.wait_in_sync(load.topic)
        load.wait_progress()
        release.upgrade("--set", "brokers.replicas=3")
        release.kubectl("wait", "--for=delete", f"pod/{release.pod(3)}", "--timeout=180s")
        assert 3 not in brokers_of(load.topic)
        check(load, figures, "from three brokers to four, and back")


@pytest.fixture
def older(lab: Lab, tmp_path: Path) -> Iterator[Release]:
    """The commit before this one, installed in a namespace of its own."""
    checkout = tmp_path / "before"
    done = subprocess.run(
        ["git", "-C", str(CHECKOUT), "archive", "--output", str(tmp_path / "before.tar"), "HEAD~1"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        cannot_run(f"this checkout has no commit before its own: {done.stderr.strip()}")
    checkout.mkdir()
    subprocess.run(["tar", "--extract", "--file", tmp_path / "before.tar", "--directory", checkout], check=True)
    found = in_lab(lab, checkout, print, ("broker", "operator"), "upgraded")
    found.install("--set", OTHERS_CRDS)
    yield found
    found.uninstall()


OTHERS_CRDS = "crds.install=false"
"""Another release has them."""


@pytest.mark.timeout(900)
def test_should_lose_nothing_when_it_is_upgraded_and_rolled_back(
    images: Release, older: Release, figures: dict[str, Any]
) -> None:
    newer = images.beside(older.name)
    with under_load(older, "upgraded") as load:
        # Also where both commits make the same images every broker is replaced.
        newer.upgrade("--set", f"{OTHERS_CRDS},brokers.podAnnotations.release=newer")
        load.wait_progress()
        newer.rollback()
        check(load, figures, "helm upgrade from the commit before, and helm rollback")


def test_should_upgrade_the_crds_and_keep_what_is_of_them(release: Release, tmp_path: Path) -> None:
    """A chart whose Topics have one short name more; and back."""
    crd = "customresourcedefinition/topics.headrace.io"

    def short_names() -> list[str]:
        return release.cluster.kubectl("get", crd, "--output=jsonpath={.spec.names.shortNames[*]}").split()

    before = short_names()
    chart = tmp_path / "headrace"
    shutil.copytree(release.chart, chart)
    (file,) = (chart / "files" / "crds").glob("*topic*.yaml")
    file.write_text(re.sub(r"( *)shortNames:\n", r"\g<0>\1- log\n", file.read_text()))
    release.create_topic("stays", partitions=1, replicas=3)
    replace(release, chart=chart).upgrade()
    assert short_names() == ["log", *before]
    release.upgrade()
    assert short_names() == before
    assert release.seen("topic", "stays")["status"]["leaders"] == "1/1"
    release.users("delete", "topic/stays", "--timeout=60s")
