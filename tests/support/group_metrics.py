"""What a broker tells Prometheus, as numbers by name and labels."""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tests.support.cluster import http


@dataclass(frozen=True, slots=True)
class Scraped:
    samples: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]

    def get(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, tuple(sorted(labels.items()))))

    def of_group(self, group: str) -> dict[str, list[float]]:
        """By name, whatever the other labels are."""
        found: dict[str, list[float]] = {}
        for (name, labels), value in self.samples.items():
            if ("group", group) in labels and not name.endswith("_created"):
                found.setdefault(name, []).append(value)
        return found


def scrape(url: str) -> Scraped:
    """Of the broker at this URL."""
    text = http("GET", f"{url}/metrics").body.decode()
    return Scraped(
        {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )
