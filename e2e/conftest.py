"""The cluster that the tests use, the images in it, and a release of the chart.

    make e2e                                                         the lab, brought up for it
    HEADRACE_E2E_KUBECONFIG=... HEADRACE_E2E_REGISTRY=... make e2e   any cluster that can pull
                                                                     REGISTRY/headrace-{broker,operator,spark}:TAG
                                                                     (HEADRACE_E2E_TAG, else `latest`)

What only the lab can do to a cluster is skipped elsewhere. What was measured is in build/e2e.json.
"""

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.lab.cluster import Cluster, Lab, bring_up, running, used_alone
from e2e.lab.errors import LabError
from e2e.lab.teardown import take_down
from e2e.release import CHECKOUT, Release
from e2e.releasing import in_lab, of_images

TESTS = Path(__file__).parent / "tests"
FIGURES = CHECKOUT / "build" / "e2e.json"
ORDER = ("readme", "installing", "attacks", "faults", "spark", "observing", "upgrading", "uninstalling")
"""Of the modules: all but the first use one release, in the namespace that the README names."""
_TIMEOUT_S = 600
"""Of a test that does not say; the first one waits for images, too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other folders' tests, where they are asked for in one run with these, stay where they are: in front."""
    own = [item for item in items if item.path.is_relative_to(TESTS)]
    others = [item for item in items if not item.path.is_relative_to(TESTS)]
    own.sort(key=lambda item: ORDER.index(item.path.stem.removeprefix("test_")))
    items[:] = [*others, *own]
    for item in own:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
    """Before the first test's time runs."""
    if os.environ.get("HEADRACE_E2E_KUBECONFIG"):
        return (yield)
    with used_alone(_say):
        return (yield)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The named one, else the lab, which is taken down in the end unless it was up."""
    named = os.environ.get("HEADRACE_E2E_KUBECONFIG")
    if named:
        cluster = Cluster(Path(named))
        refuse_used(cluster)
        yield cluster
        return
    left = running()
    if left is not None:
        left.heal_all()
    yield bring_up(_say)
    if left is None:
        take_down(_say)


def refuse_used(cluster: Cluster) -> None:
    """These tests install, upgrade, uninstall and delete Topics: never where somebody has any."""
    try:
        topics = cluster.kubectl("get", "topics.headrace.io", "--all-namespaces", "--output=name").split()
    except LabError as error:
        if "the server doesn't have a resource type" not in str(error):
            raise
        return
    if topics:
        pytest.exit(f"{cluster.kubeconfig}: a cluster with {len(topics)} Topics; end-to-end tests want one without", 2)


@pytest.fixture(scope="session")
def lab(cluster: Cluster) -> Lab:
    if not isinstance(cluster, Lab):
        pytest.skip("only the lab's node and network can be hurt")
    return cluster


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> Release:
    """A release with the images of this checkout, which the cluster has. It is not installed."""
    if isinstance(cluster, Lab):
        return in_lab(cluster, CHECKOUT, _say)
    registry, tag = os.environ["HEADRACE_E2E_REGISTRY"], os.environ.get("HEADRACE_E2E_TAG", "latest")
    return of_images(cluster, CHECKOUT, registry, tag, "IfNotPresent")


@pytest.fixture(scope="session")
def release(images: Release) -> Release:
    """Installed, and ready."""
    images.install()
    return images


@pytest.fixture(scope="session")
def figures() -> Iterator[dict[str, Any]]:
    """What tests have measured, by name; written down at the end."""
    found: dict[str, Any] = {}
    yield found
    FIGURES.parent.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps(found, indent=2) + "\n")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - how far it is
