"""What came of what brokers were asked to do for a group: to delete it, or to reset its offsets."""

from dataclasses import dataclass
from enum import Enum

from headrace.core.errors import GroupNotEmptyError, HeadraceError


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

    @classmethod
    def of(cls, error: HeadraceError) -> "Verdict":
        if isinstance(error, GroupNotEmptyError):
            return cls(Result.NOT_EMPTY, error.code, error.message)
        if error.retriable or error.status >= 500:
            # The same words for every try, whichever broker it was: a status does not tell each of them anew.
            return cls(
                Result.UNANSWERED, "Unanswered", f"the brokers cannot do it now ({error.code}), it is tried again"
            )
        return cls(Result.REFUSED, error.code, error.message)


DONE = Verdict(Result.DONE, "Done")
