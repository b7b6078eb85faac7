"""What can be wrong with the data that a query is to read, and what is done about it."""

import logging
from dataclasses import dataclass

from headrace.core.errors import HeadraceError

_log = logging.getLogger("headrace.spark")


class DataLossError(HeadraceError):
    """Records that a query was to read are gone: deleted by retention, truncated, or with their topic. Or they were
    written so that nobody can decode them."""

    code = "DataLoss"


class RecreatedTopicError(DataLossError):
    """A topic was deleted and created again while a query had positions in it."""

    code = "RecreatedTopic"


class BadValueError(HeadraceError):
    """A record's value is not what `valueFormat` and `valueSchema` say."""

    code = "BadValue"


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """`failOnDataLoss`, and `onTopicRecreated` of streams."""

    fails: bool = True
    starts_over: bool = False
    """With a topic that was created again."""

    def lost(self, what: str, instead: str) -> None:
        """Raises DataLossError, or says in the log that reading goes on, `instead`."""
        if self.fails:
            raise DataLossError(f"{what}; to go on {instead}, set failOnDataLoss=false")
        _log.warning("%s; going on %s, as failOnDataLoss=false says", what, instead)

    def recreated(self, topic: str) -> None:
        """The same of a topic whose uid is another one."""
        what = f"topic {topic} was deleted and created again: what the query has not read of the old one is gone"
        if not self.starts_over:
            raise RecreatedTopicError(
                f"{what}, and its positions mean nothing in the new one; begin with a new checkpoint, or set"
                " onTopicRecreated=restart to go on at the beginning of the new one"
            )
        _log.warning("%s; going on at the beginning of the new one, as onTopicRecreated=restart says", what)
