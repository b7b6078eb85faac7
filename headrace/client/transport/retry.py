"""The policy for failed requests: when one is tried again, when it is given up, and when its failure is logged.

    failed(error) ──> TryAgain(at_ms, refresh)      retriable, and the time is not up
                 └──> GiveUp(error)                 not retriable, or failing for longer than `timeout_ms`

Waits grow by a factor of two and are drawn between half of that and all of it, so that many clients do not retry in
step. One policy serves producers and consumers; it has no clock and no chance of its own.

`Trouble` logs work that keeps failing while it is still tried again, on the logger `headrace.client`: one sentence as
soon as it has failed for `TROUBLE_SILENT_MS`, or a request has had no answer for `TROUBLE_UNANSWERED_MS`, then every
`TROUBLE_INTERVAL_MS` for each piece of work. A reason that was just logged is not repeated for other work, or a dead
broker would be logged once a partition. A client's threads share one; at worst a sentence is logged twice.
"""

import logging
from dataclasses import dataclass, field
from random import Random

from headrace.core.errors import (
    BrokerUnreachableError,
    FencedEpochError,
    HeadraceError,
    NotLeaderError,
    NotReadyError,
    PartitionOfflineError,
    StaleTopicError,
    StorageFailedError,
    UnknownTopicError,
)
from headrace.core.limits import CLIENT_BACKOFF_MIN_MS

UNKNOWN_TOPIC_GRACE_MS = 3_000
"""The time for which an unknown topic is looked up again before it is an error: it may be a moment old."""
CLIENT_BACKOFF_MAX_MS = 1_000
TROUBLE_SILENT_MS = 1_000
"""A failure that lasts longer than this is logged, while the work is tried again."""
TROUBLE_UNANSWERED_MS = 10_000
"""A request that has had no answer for longer than this is logged."""
TROUBLE_INTERVAL_MS = 5_000
"""The time after which the same trouble is logged again."""


_log = logging.getLogger("headrace.client")
_LAYOUT_CHANGED = (
    NotLeaderError,
    FencedEpochError,
    StaleTopicError,
    PartitionOfflineError,
    NotReadyError,
    StorageFailedError,
    BrokerUnreachableError,
)
"""The errors after which the topic's metadata is read again: another broker may lead by now."""


@dataclass(slots=True)
class Trouble:
    _told_at_ms: dict[str, int] = field(default_factory=dict)
    """The time of the last log line, by the work that fails, and by the reason."""

    def tell(self, what: str, error: HeadraceError, failing_since_ms: int, now_ms: int) -> None:
        sentence = self.notice(what, error.message, failing_since_ms, now_ms)
        if sentence is not None:
            _log.warning("%s", sentence)

    def tell_unanswered(self, what: str, since_ms: int, now_ms: int) -> None:
        """Log that a request has had no answer since `since_ms`."""
        silent_ms = now_ms - since_ms
        if silent_ms >= TROUBLE_UNANSWERED_MS:
            sentence = self._due(what, f"no answer for {silent_ms / 1000:.0f} s", "still waiting", now_ms)
            if sentence is not None:
                _log.warning("%s", sentence)

    def notice(self, what: str, why: str, failing_since_ms: int, now_ms: int) -> str | None:
        """Return the sentence that is due; None while there is none."""
        if now_ms - failing_since_ms < TROUBLE_SILENT_MS:
            return None
        return self._due(what, why.removesuffix("; try again"), "trying again", now_ms)

    def _due(self, what: str, why: str, then: str, now_ms: int) -> str | None:
        told = {name: at_ms for name, at_ms in self._told_at_ms.items() if now_ms - at_ms < TROUBLE_INTERVAL_MS}
        self._told_at_ms = told
        if what in told or why in told:
            return None
        told[what] = told[why] = now_ms
        return f"{what}: {why}; {then}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure: its error, for how long, and how often in a row."""

    what: str
    """The name of the work, as messages show it: `records for flights/3`."""
    error: HeadraceError
    attempts: int
    """The number of attempts, 1 for the first failure."""
    since_ms: int
    """The time from which the time limit counts."""
    failing_since_ms: int
    """The time when the first of these attempts began: work that only waited for its turn is not in trouble."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    at_ms: int
    refresh: bool
    """Whether the topic's metadata is read first."""


@dataclass(frozen=True, slots=True)
class StopTrying:
    error: HeadraceError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    timeout_ms: int
    also_retriable: tuple[type[HeadraceError], ...] = ()
    trouble: Trouble | None = None
    """The log of failures that are tried again."""

    def decide(self, failure: Failure, now_ms: int, random: Random) -> TryAgain | StopTrying:
        error = failure.error
        if not (error.retriable or isinstance(error, self.also_retriable)):
            return StopTrying(error)
        at_ms = now_ms + max(backoff_ms(failure.attempts, random), _retry_after_ms(error))
        if at_ms - failure.since_ms > self.timeout_ms:
            return StopTrying(_given_up(failure, now_ms))
        if self.trouble is not None:
            self.trouble.tell(failure.what, error, failure.failing_since_ms, now_ms)
        return TryAgain(at_ms, changes_layout(error))


@dataclass(slots=True)
class Retries:
    """One question that is asked until it is answered or given up."""

    what: str
    timeout_ms: int
    since_ms: int
    trouble: Trouble
    attempts: int = 0

    def failed(self, error: HeadraceError, now_ms: int, random: Random) -> TryAgain:
        """Return when to try again, or raise the last error. A topic may be a moment old: it is looked up again."""
        self.attempts += 1
        if isinstance(error, UnknownTopicError):
            policy = RetryPolicy(min(self.timeout_ms, UNKNOWN_TOPIC_GRACE_MS), (UnknownTopicError,))
        else:
            policy = RetryPolicy(self.timeout_ms, trouble=self.trouble)
        decision = policy.decide(Failure(self.what, error, self.attempts, self.since_ms, self.since_ms), now_ms, random)
        if isinstance(decision, StopTrying):
            raise decision.error
        return decision


def changes_layout(error: HeadraceError) -> bool:
    """Return whether the topic's metadata should be read again."""
    return isinstance(error, _LAYOUT_CHANGED)


def backoff_ms(attempts: int, random: Random) -> int:
    """Return the wait after the `attempts`-th failure in a row."""
    ceiling = min(CLIENT_BACKOFF_MAX_MS, CLIENT_BACKOFF_MIN_MS << min(attempts - 1, 16))
    return random.randint(ceiling // 2, ceiling)


def _retry_after_ms(error: HeadraceError) -> int:
    """Return the time that this broker asks for; 0 where another may lead: elections take less than a second."""
    if isinstance(error, _LAYOUT_CHANGED):
        return 0
    wait = error.details.get("retryAfterMs")
    return wait if isinstance(wait, int) else 0


def _given_up(failure: Failure, now_ms: int) -> HeadraceError:
    seconds = (now_ms - failure.since_ms) / 1000
    tries = f"{failure.attempts} {'try' if failure.attempts == 1 else 'tries'}"
    message = f"gave up on {failure.what} after {tries} in {seconds:.1f} s: {failure.error.message}"
    return type(failure.error)(message, **failure.error.details)
