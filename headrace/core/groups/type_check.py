"""Is a group used as what it is? Members join and commit to those of type Consumer, a Spark query reports to its own.

The two never mix: a member would begin where a query was last seen, which is not where that query begins itself.
"""

from typing import Any

from headrace.core.errors import WrongGroupTypeError
from headrace.core.groups.events import CommitReceived, JoinReceived, ResetResolved
from headrace.core.groups.identity import GroupName, GroupType


def type_problem(group: GroupName, event: Any, said: GroupType) -> WrongGroupTypeError | None:
    """`said`: by the group's log, or by its ConsumerGroup; a use must suit both. None: it suits this."""
    wanted = _wanted(event)
    if wanted is None or wanted is said:
        return None
    if wanted is GroupType.SPARK:
        return WrongGroupTypeError(
            f"{group} is of type Consumer, and its members commit its offsets: let the query report to a group of"
            " another name, or delete this one first"
        )
    if isinstance(event, ResetResolved):
        return WrongGroupTypeError(
            f"{group} is of type Spark, whose query has its position in a checkpoint of its own: start the query with"
            " another checkpoint"
        )
    return WrongGroupTypeError(
        f"{group} is of type Spark: it shows how far a query is, which shares partitions out itself; take another name"
        " for the group"
    )


def _wanted(event: Any) -> GroupType | None:
    """What the group must be; None: either will do."""
    match event:
        case CommitReceived():
            return event.type
        case JoinReceived() | ResetResolved():
            return GroupType.CONSUMER
        case _:
            return None
