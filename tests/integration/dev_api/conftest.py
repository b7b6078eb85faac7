"""One embedded API for tests that leave nothing in it but Pods of their own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.api_server import embedded_api


@dataclass(frozen=True, slots=True)
class Embedded:
    url: str
    logs: Path
    """Where it believes Pods to log, as `pod-<ordinal>.log`."""


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    folder = tmp_path_factory.mktemp("embedded")
    with embedded_api(folder / "data", "--pod-logs", str(folder / "pod-{ordinal}.log")) as running:
        yield Embedded(running.url, folder)
