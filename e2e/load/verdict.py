"""What the clients in a pod say in the end: made there, as one line of its log, and read here."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

MARK = "verdict: "


@dataclass(frozen=True, slots=True)
class Verdict:
    """Partitions are numbered by text, as JSON has it."""

    wrong: list[str]
    """What was promised and not kept."""
    acknowledged: int
    unknown: int
    refused: int
    read: int
    lost: int
    duplicated: int
    unavailability_s: Mapping[str, float]
    """By partition: the longest time without an acknowledged write."""
    silence_s: Mapping[str, float]
    """By partition: the longest time without an answer to a reader."""
    ends: Mapping[str, int]
    """By partition: the high watermark, when all was written."""
    failures: Mapping[str, int]
    """What writers were told instead of an acknowledgement."""

    def __str__(self) -> str:
        return MARK + json.dumps(asdict(self))

    @classmethod
    def parse(cls, line: str) -> "Verdict":
        return cls(**json.loads(line.removeprefix(MARK)))
