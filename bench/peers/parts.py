"""Both parts of the comparison as one page and one object: clients, and Spark. Pure."""

from dataclasses import dataclass
from typing import Any

from bench.peers import report
from bench.peers.report import Results
from bench.peers.spark import report as spark_report
from bench.peers.spark.report import SparkResults


@dataclass(frozen=True, slots=True)
class Parts:
    clients: Results | None
    """None where it was not asked for."""
    spark: SparkResults | None

    def as_markdown(self) -> str:
        clients = [] if self.clients is None else [report.as_markdown(self.clients)]
        spark = [] if self.spark is None else [spark_report.as_markdown(self.spark)]
        return "\n".join([*clients, *spark])

    def as_json(self) -> dict[str, Any]:
        clients = {} if self.clients is None else report.as_json(self.clients)
        return clients if self.spark is None else {**clients, "spark": spark_report.as_json(self.spark)}
