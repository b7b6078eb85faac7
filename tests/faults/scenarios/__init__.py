"""The scenarios by name. Each is a few lines: what is broken, how often, and what must go on meanwhile."""

from typing import Final

from tests.faults.scenarios import compaction, control, crashes, disks, elections, groups, operations, partitions
from tests.faults.scenarios.scenario import Scenario

_MODULES = (crashes, partitions, disks, compaction, elections, operations, control, groups)
SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.name: scenario
    for scenario in sorted(
        (scenario for module in _MODULES for scenario in module.SCENARIOS), key=lambda scenario: int(scenario.name[1:])
    )
}
