"""What a `headrace` command line gave, for tests that type one."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


class Headrace(Protocol):
    def __call__(self, *arguments: str, stdin: str = "") -> Done: ...
