"""The schedule: kinds of events, and the steps that were taken, so that a run can be played again, or thinned.

A step names its kind, its target and its chance (`draw`, from which the event takes whatever else it needs), and how
long the world waited before. A step whose target is not there when a thinned run is played is left out: so the rest
keeps its meaning when others are taken away. As text, one step a line: `kill 1`, `message 1>0`, `wait 12000`.
"""

from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple, Protocol


class Target(Protocol):
    @property
    def label(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Whole:
    """The target of events that concern no one part."""

    label: str = ""


WHOLE: Sequence[Target] = (Whole(),)


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    weight: float
    targets: Callable[[], Sequence[Target]]
    """A function that returns the targets that it can happen to now; none where it cannot happen."""
    act: Callable[[Any, int], None]
    """A function that acts on the target, with the draw."""
    is_fault: bool = False


class Step(NamedTuple):
    kind: str
    target: str = ""
    draw: int = 0
    wait_ms: int = 1

    def __str__(self) -> str:
        words = [self.kind.replace(" ", "-"), self.target or "-", str(self.draw), str(self.wait_ms)]
        return " ".join(words).removesuffix(" 1").removesuffix(" 0").removesuffix(" -")

    @classmethod
    def parse(cls, line: str) -> "Step":
        given = line.split()
        defaults = ["", "-", "0", "1"]
        kind, target, draw, wait_ms = [*given, *defaults[len(given) :]]
        return cls(kind.replace("-", " "), "" if target == "-" else target, int(draw), int(wait_ms))


class Table:
    """Kinds with their weights, to draw from."""

    def __init__(self, kinds: Sequence[Kind], moods: Mapping[str, float]) -> None:
        self._kinds = [kind for kind in kinds if moods.get(kind.name, 1) > 0]
        self._edges = list(accumulate(kind.weight * moods.get(kind.name, 1) for kind in self._kinds))
        self._total = self._edges[-1]

    def draw(self, random: Random) -> Kind:
        return self._kinds[bisect(self._edges, random.random() * self._total)]


def name_of(targets: Sequence[Target], index: int) -> str:
    """Return its label, and which it is where several have the same: `1.PUT`, `1.PUT#1`."""
    label = targets[index].label
    before = sum(target.label == label for target in targets[:index]) if index else 0
    return f"{label}#{before}" if before else label


def find(targets: Sequence[Target], name: str) -> Target | None:
    label, _, before = name.partition("#")
    same = [target for target in targets if target.label == label]
    return same[min(int(before or 0), len(same) - 1)] if same else None
