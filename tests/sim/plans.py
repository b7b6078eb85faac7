"""The plan of a run: drawn from its seed, so that runs differ in more than their order (swarm testing).

Some faults hide others: a cluster that always loses power never gets a long log, one that never loses an answer never
writes twice. So each run has its own cluster, and its own mood for each kind of event.
"""

from dataclasses import dataclass, fields
from random import Random
from typing import Any, Self

from headrace.core.resources.topic import Durability

FOCUSES = (
    "drain",
    "drain leader",
    "sync fails",
    "disk full",
    "broker leaves",
    "broker leaves",
    "sync fails",
    "disk full",
    "kill",
    "power failure",
    "call lost",
    "call doubled",
    "call given up",
    "answer lost",
    "part",
    "pause",
    "break stream",
    "operator killed",
    "disk lost",
)
DRILLS = (
    "drain",
    "drain leader",
    "sync fails",
    "disk full",
    "disk full",
    "disk full",
    "broker leaves",
    "kill",
    "kill",
    "call given up",
    "call given up",
    "disk lost",
)
GROUP_FOCUSES = (
    "",
    "",
    "member pauses",
    "member killed",
    "held up",
    "member request doubled",
    "kill leader",
    "power failure",
    "drain leader",
    "topic vanishes",
    "target otherwise",
    "operator is hasty",
    "operator rests",
    "groups lose api",
    "days go by",
)
LEADERS_TAKEN_AWAY = 0.12
"""The share of all runs that are a drill of that: it takes much until a leader is one too many."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int = 0
    """The seed of clocks, moods and events."""
    brokers: int = 3
    replicas: int = 3
    min_insync_replicas: int = 2
    durability: Durability = Durability.FSYNC
    steps: int = 700
    operators: int = 1
    moves: bool = False
    """True where the topic asks for other numbers of replicas, and brokers leave and come back."""
    unclean: bool = False
    """Leaders out of sync may be elected: acknowledged records may be lost."""
    restores: bool = False
    """True where the API server's data goes back, and people run `headrace cluster recover`."""
    perils: bool = False
    """More disks are lost than was promised: records may be lost with the last intact log."""
    skew: bool = True
    """Clocks run at different rates."""
    focus: str = ""
    """The kind of fault that happens far more often than others."""
    drill: bool = False
    """True where nothing else fails: the core's reaction is played through to its end, again and again."""
    calm: bool = False
    """True where all moods are even."""
    members: int = 0
    """The number of processes that read as a group, with the offsets topic as the log; 0: clients just write."""
    retention_days: int = 0
    """People say that the group keeps its offsets for so long, -1 for ever; 0: they say nothing."""

    @classmethod
    def drawn(cls, seed: int) -> Self:
        random = Random(seed)
        moves = random.random() < 0.5
        brokers = random.choice((4, 4, 5)) if moves else 3
        unclean = not moves and random.random() < 0.4
        drill = random.random() < 0.4
        beyond = random.choice(("restores", "perils")) if random.random() < 0.25 and not unclean else ""
        if random.random() < LEADERS_TAKEN_AWAY:
            return cls(
                seed=seed,
                brokers=4,
                min_insync_replicas=1,
                steps=5_000,
                operators=random.choice((1, 1, 2)),
                moves=True,
                focus="leader is one too many",
                drill=True,
            )
        return cls(
            seed=seed,
            brokers=brokers,
            min_insync_replicas=1 if unclean else random.choice((1, 1, 2, 2, 2, 3)),
            durability=Durability.FSYNC if random.random() < 0.7 else Durability.REPLICATED,
            steps=random.choice((600, 1_500, 3_000, 5_000, 5_000)),
            operators=random.choice((1, 1, 2)),
            moves=moves,
            unclean=unclean,
            focus=random.choice(DRILLS if drill else FOCUSES) if drill or random.random() < 0.6 else "",
            drill=drill,
            skew=random.random() < 0.75,
            restores=beyond == "restores",
            perils=beyond == "perils",
        )

    @classmethod
    def drawn_group(cls, seed: int) -> Self:
        """Draw a group on a log that loses nothing: faults of logs are for other runs."""
        random = Random(seed)
        return cls(
            seed=seed,
            steps=random.choice((1_500, 3_000, 3_000)),
            min_insync_replicas=random.choice((1, 2)),
            skew=random.random() < 0.3,
            focus=random.choice(GROUP_FOCUSES),
            members=random.choice((2, 3, 4, 5)),
            retention_days=random.choice((-1, 30, 0)),
        )

    def __str__(self) -> str:
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return " ".join(f"{name}={_text(value)}" for name, value in values)

    @classmethod
    def parse(cls, text: str) -> Self:
        given = dict(part.split("=", 1) for part in text.split())
        return cls(**{name: _value(name, value) for name, value in given.items()})


def _text(value: Any) -> str:
    return value.value if isinstance(value, Durability) else str(value).replace(" ", "-")


def _value(name: str, text: str) -> Any:
    if name == "durability":
        return Durability(text)
    if name == "focus":
        return text.replace("-", " ")
    return text == "True" if text in ("True", "False") else int(text)
