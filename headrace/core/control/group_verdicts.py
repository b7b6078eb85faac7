"""What came of what brokers were asked to do for a group: to delete it, or to reset its offsets."""

from dataclasses import field
from enum import Enum

from headrace.core.errors import GroupNotEmptyError, HeadraceError
from headrace.core.slotted import dataclass

_CAUSE_LENGTH_MAX = 300


class Result(Enum):
    DONE = "done"
    NOT_EMPTY = "the group has members"
    REFUSED = "it cannot be done as it stands: somebody must change the manifest, or a topic"
    UNANSWERED = "nobody could do it just now"


@dataclass(frozen=True, slots=True)
class Verdict:
    result: Result
    reason: str
    """CamelCase, for conditions."""
    message: str = ""
    cause: str = field(default="", compare=False)
    """In full, for the log: which broker it was, and what it said."""

    @classmethod
    def of(cls, error: HeadraceError) -> "Verdict":
        if isinstance(error, GroupNotEmptyError):
            return cls(Result.NOT_EMPTY, error.code, error.message)
        if error.retriable or error.status >= 500:
            # The same words for every try, whichever broker it was: a status does not tell each of them anew. What is
            # not bound to pass by itself is told.
            why = error.code if error.retriable else f"{error.code}: {error.message[:_CAUSE_LENGTH_MAX]}"
            message = f"the brokers cannot do it now ({why}), it is tried again"
            return cls(Result.UNANSWERED, "Unanswered", message, cause=f"{error.code}: {error.message}")
        return cls(Result.REFUSED, error.code, error.message, cause=f"{error.code}: {error.message}")


DONE = Verdict(Result.DONE, "Done")
