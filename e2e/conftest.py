"""The cluster that the tests use, the images in it, and a release of the chart.

    make e2e                                                         the lab, brought up for it
    HEADRACE_E2E_KUBECONFIG=... HEADRACE_E2E_REGISTRY=... make e2e   any cluster that can pull
                                                                     REGISTRY/headrace-{broker,operator,spark}:TAG
                                                                     (HEADRACE_E2E_TAG, else `latest`)

What only the lab can do to a cluster is skipped elsewhere. What was measured is in build/e2e.json.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.lab.cluster import Cluster, Lab, bring_up
from e2e.lab.images import TARGETS, build_images, import_images
from e2e.lab.teardown import take_down
from e2e.release import CHART, Release, values_of

CHECKOUT = Path(__file__).parents[1]
NAME = "headrace"
"""Of namespace, release and cluster, as in the README."""
FIGURES = CHECKOUT / "build" / "e2e.json"
ORDER = ("readme", "installing", "faults", "spark", "observing", "upgrading", "uninstalling")
"""Of the modules: all but the first use one release, in the namespace that the README names."""
_TIMEOUT_S = 600
"""Of a test that does not say; the first one waits for images, too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ORDER.index(item.path.stem.removeprefix("test_")))
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The named one, else the lab, which is taken down in the end unless it was up."""
    named = os.environ.get("HEADRACE_E2E_KUBECONFIG")
    if named:
        yield Cluster(Path(named))
        return
    said: list[str] = []
    lab = bring_up(said.append)
    yield lab
    if "the lab is up already" not in said:
        take_down(said.append)


@pytest.fixture(scope="session")
def lab(cluster: Cluster) -> Lab:
    if not isinstance(cluster, Lab):
        pytest.skip("only the lab's node and network can be hurt")
    return cluster


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> Release:
    """A release with the images of this checkout, which the cluster has. It is not installed."""
    if isinstance(cluster, Lab):
        return in_lab(cluster, CHECKOUT)
    registry, tag = os.environ["HEADRACE_E2E_REGISTRY"], os.environ.get("HEADRACE_E2E_TAG", "latest")
    return of_images(cluster, registry, tag, "IfNotPresent")


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


def in_lab(lab: Lab, checkout: Path, targets: tuple[str, ...] = TARGETS, name: str = NAME) -> Release:
    """With images of this checkout."""
    tag = build_images(checkout, _say, targets)
    import_images(tag, _say, targets)
    return of_images(lab, "localhost", tag, "Never", name)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - how far it is


def of_images(cluster: Cluster, registry: str, tag: str, pull_policy: str, name: str = NAME) -> Release:
    images = {target: f"{registry}/headrace-{target}:{tag}" for target in TARGETS}
    settings = [
        ("image.registry", registry),
        ("image.tag", tag),
        ("image.pullPolicy", pull_policy),
        *((f"{section}.repository", f"headrace-{name}") for section, name in _REPOSITORIES),
    ]
    values = ("--values", str(CHART / "ci" / "lab.yaml"), *values_of(settings))
    return Release(cluster, name, images, values, pull_policy, name)


_REPOSITORIES = (("brokers", "broker"), ("operator", "operator"))
