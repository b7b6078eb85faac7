"""Releases with images of a checkout, or of a registry. They are not installed yet."""

from collections.abc import Callable
from pathlib import Path

from e2e.lab.cluster import Cluster, Lab
from e2e.lab.images import TARGETS, build_images, import_images
from e2e.release import Release, values_of

NAME = "headrace"
"""Of namespace, release and cluster, as in the README."""
_REPOSITORIES = (("brokers", "broker"), ("operator", "operator"))


def in_lab(
    lab: Lab, checkout: Path, say: Callable[[str], None], targets: tuple[str, ...] = TARGETS, name: str = NAME
) -> Release:
    """With images of this checkout, which are built and imported, and its chart."""
    tag = build_images(checkout, say, targets)
    import_images(tag, say, targets)
    return of_images(lab, checkout, "localhost", tag, "Never", name)


def of_images(cluster: Cluster, checkout: Path, registry: str, tag: str, pull_policy: str, name: str = NAME) -> Release:
    chart = checkout / "charts" / "headrace"
    images = {target: f"{registry}/headrace-{target}:{tag}" for target in TARGETS}
    settings = [
        ("image.registry", registry),
        ("image.tag", tag),
        ("image.pullPolicy", pull_policy),
        *((f"{section}.repository", f"headrace-{image}") for section, image in _REPOSITORIES),
    ]
    values = ("--values", str(chart / "ci" / "lab.yaml"), *values_of(settings))
    return Release(cluster, name, chart, images, values, pull_policy, name)
