"""What a case was in all rounds that count: medians. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.spark.cases import Case
from bench.peers.spark.job import Measured


@dataclass(frozen=True, slots=True)
class Rounds:
    measured: Sequence[Measured]

    def of(self, case: Case) -> list[Measured]:
        """Without the round that warms up; none where the case was left out."""
        return [each for each in self.measured if each.case == case.key and each.round > 0]

    @property
    def count(self) -> int:
        return max(each.round for each in self.measured)

    def rate(self, case: Case) -> float:
        """Rows a second."""
        return statistics.median(each.rows / each.seconds for each in self.of(case))

    def trigger_ms(self, case: Case) -> float:
        """The median of the rounds' medians."""
        return statistics.median(statistics.median(each.trigger_ms) for each in self.of(case))

    def spark_cpu_s(self, case: Case) -> float:
        """A row."""
        return statistics.median(each.spark_cpu_s / each.rows for each in self.of(case))

    def broker_cpu_s(self, case: Case) -> float:
        """A row."""
        return statistics.median(each.broker_cpu_s / each.rows for each in self.of(case))
