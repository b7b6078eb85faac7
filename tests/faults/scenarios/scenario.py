"""What a scenario is."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.faults.play import Play, Setting


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    """As in the list of scenarios: S1, S2 ..."""
    title: str
    act: Callable[[Play], None]
    setting: Setting = field(default_factory=Setting)
    short: int = 1
    """Rounds of its fault in the short form ..."""
    long: int = 3
    """... and in the long one."""
