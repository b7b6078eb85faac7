"""The errors in the data that a query is to read, and the policy for them."""

import logging
from dataclasses import dataclass

from headrace.core.errors import HeadraceError

_log = logging.getLogger("headrace.spark")


class DataLossError(HeadraceError):
    """Records that a query was to read are gone: deleted by retention, truncated, or with their topic. Or they were
    written so that they cannot be decoded."""

    code = "DataLoss"


class RecreatedTopicError(DataLossError):
    """A topic was deleted and created again while a query had positions in it."""

    code = "RecreatedTopic"


class BadValueError(HeadraceError):
    """A record's value does not fit `valueFormat` and `valueSchema`."""

    code = "BadValue"


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """The policy of `failOnDataLoss`, and `onTopicRecreated` of streams."""

    fails: bool = True
    starts_over: bool = False
    """True where reading starts over with a topic that was created again."""

    def lost(self, what: str, instead: str) -> None:
        """Raise DataLossError, or log that reading goes on, `instead`."""
        if self.fails:
            raise DataLossError(f"{what}; to go on {instead}, set failOnDataLoss=false")
        _log.warning("%s; going on %s, as failOnDataLoss=false says", what, instead)

    def recreated(self, topic: str) -> None:
        """Do the same for a topic whose uid is another one."""
        what = f"topic {topic} was deleted and created again: what the query has not read of the old one is gone"
        if not self.starts_over:
            raise RecreatedTopicError(
                f"{what}, and its positions mean nothing in the new one; begin with a new checkpoint, or set"
                " onTopicRecreated=restart to go on at the beginning of the new one"
            )
        _log.warning("%s; going on at the beginning of the new one, as onTopicRecreated=restart says", what)
