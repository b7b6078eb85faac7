"""A Prometheus beside the lab that scrapes pods by their `prometheus.io` annotations, as clusters have it set up."""

import json
import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from e2e.release import CHART, Release
from e2e.waiting import wait_for
from headrace.dev.supervisor.layout import LOOPBACK, free_port_run
from headrace.dev.supervisor.parent_death import dying_with_parent
from tests.support.tools import require_tool

RULES = CHART / "files" / "alerts.yaml"
_FOR_S = 3


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Samples of an instant query."""
        found: list[dict[str, Any]] = self._ask("/api/v1/query", query=expr)["result"]
        return found

    def knows(self, metric: str) -> bool:
        """Whether a target has said what this is, with samples or without. Histograms by each of their names."""
        family = re.sub(r"_(bucket|count|sum)$", "", metric)
        names = {metric, family, family.removesuffix("_total")}
        return any(self._ask("/api/v1/metadata", metric=name) for name in names)

    def up(self) -> int:
        """So many targets are scraped."""
        return sum(target["health"] == "up" for target in self._ask("/api/v1/targets")["activeTargets"])

    def firing(self) -> set[str]:
        """Alerts, by name."""
        alerts = self._ask("/api/v1/alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def _ask(self, path: str, **query: str) -> Any:
        with urlopen(f"{self.url}{path}?{urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]


@contextmanager
def prometheus(release: Release, folder: Path) -> Iterator[Prometheus]:
    """Until the block ends. Alerts fire after seconds rather than minutes: how long they wait is not what is tested."""
    program = require_tool("prometheus")
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = f"{_FOR_S}s"
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    scrape = {
        "job_name": release.name,
        "honor_labels": True,
        "static_configs": [{"targets": targets(release)}],
    }
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": [scrape],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    address = f"{LOOPBACK}:{free_port_run(1, random.Random())}"
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(dying_with_parent(command), stdout=log, stderr=log)
    running = Prometheus(f"http://{address}")
    try:
        wait_for(lambda: running.up() > 0, "Prometheus has found pods", 30)
        yield running
    finally:
        process.terminate()
        process.wait(timeout=30)


def targets(release: Release) -> list[str]:
    """Of all pods that say so."""
    found = []
    for pod in release.get("pods")["items"]:
        said = pod["metadata"].get("annotations", {})
        if said.get("prometheus.io/scrape") == "true" and pod["status"]["phase"] == "Running":
            assert said["prometheus.io/path"] == "/metrics"
            found.append(f"{pod['status']['podIP']}:{said['prometheus.io/port']}")
    return found
