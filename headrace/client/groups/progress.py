"""The progress of a Spark query, reported to a group of type Spark: for people who watch, never for the query itself.

    report ── news, or PROGRESS_REPEAT_MS is over ──> sent ── taken ──> (until there is news)
                                                       └─ failed ──> nothing is sent for a while

No failure here reaches the query: it is logged once, and a later report says all anew. A report takes
PROGRESS_TIMEOUT_MS at most, and failed ones take a tenth of the query's time at most. One thread uses it.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from headrace.client.clock import now_ms
from headrace.client.groups.coordinator_client import CoordinatorClient
from headrace.client.record import as_group
from headrace.client.transport.brokers import Brokers
from headrace.client.transport.calls import as_namespace
from headrace.client.transport.discovery import Servers
from headrace.client.transport.errands import Errand
from headrace.core.errors import HeadraceError
from headrace.core.groups.assignment import Names
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import CommitReceived
from headrace.core.groups.identity import GroupName, GroupType
from headrace.core.limits import OFFSETS_PER_COMMIT_MAX
from headrace.core.types import Offset, PartitionKey

PROGRESS_TIMEOUT_MS = 1_000
"""The time limit of a report of a Spark query's progress: the query waits so long."""
PROGRESS_PAUSE_MS = 1_000
"""After a report that failed none is tried for so long, ..."""
PROGRESS_PAUSE_FACTOR = 10
"""... nor for so many times its duration: brokers that do not answer cost a query a tenth of its time at most."""
PROGRESS_PATIENCE_MS = 10_000
"""A failure that may pass is warned of when it has lasted so long: a cluster's first group waits for its topic."""
PROGRESS_REPEAT_MS = 60_000
"""Progress without a change is reported again so often, as offsets are forgotten by the time of their last report."""


_log = logging.getLogger(__name__)
_NUMBER = 0
"""The number of every request: the broker that takes a request gives it its own."""


class ProgressReporter:
    def __init__(
        self,
        group: str,
        server: str | Servers | None = None,
        namespace: str | None = None,
        *,
        ca_file: str | None = None,
    ) -> None:
        """Prepare reports; it connects to nobody yet. Raises LocalError for what is no group's name, NoServerError."""
        self._group = GroupName(as_namespace(namespace), as_group(group))
        self._brokers = Brokers(
            server,
            namespace,
            ca_file=ca_file,
            timeout_ms=PROGRESS_TIMEOUT_MS,
            request_timeout_ms=PROGRESS_TIMEOUT_MS,
        )
        self._coordinator = CoordinatorClient(self._brokers, self._group, GroupType.SPARK)
        self._told: Mapping[PartitionKey, int] = {}
        """The offsets that brokers were told last, and the time until which that will do."""
        self._told_until_ms = 0
        self._resting_until_ms = 0
        self._failing_since_ms: int | None = None
        """The time of the first failure in a row. None: the last report did not fail."""
        self._is_warned = False

    def report(self, offsets: Mapping[PartitionKey, int], names: Names) -> bool:
        """Report that all below `offsets` is done, in every partition of the query; return whether brokers know.

        `names` are those of its topics. It raises nothing: a failure is logged.
        """
        at_ms = now_ms()
        if offsets == self._told and at_ms < self._told_until_ms:
            return True
        if at_ms < self._resting_until_ms:
            return False
        try:
            self._send(offsets, names, at_ms + PROGRESS_TIMEOUT_MS)
        except Exception as error:  # A query must not fail because somebody watches it.
            self._failed(error, at_ms)
            return False
        self._succeeded(offsets)
        return True

    def close(self) -> None:
        self._brokers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, offsets: Mapping[PartitionKey, int], names: Names, by_ms: int) -> None:
        for topic in [*names.values()][:1]:
            with suppress(HeadraceError):
                # After this, more brokers are known than those that were named.
                self._brokers.run(self._brokers.layout_once(topic))
        values = {key: OffsetValue(Offset(offset)) for key, offset in sorted(offsets.items())}
        listed = [*values]
        for first in range(0, len(listed), OFFSETS_PER_COMMIT_MAX):
            some = {key: values[key] for key in listed[first : first + OFFSETS_PER_COMMIT_MAX]}
            self._commit(CommitReceived(_NUMBER, some, type=GroupType.SPARK), names, by_ms)

    def _commit(self, commit: CommitReceived, names: Names, by_ms: int) -> None:
        def once() -> Errand[None]:
            yield from self._coordinator.find(by_ms)
            yield from self._coordinator.ask_once(commit, names, by_ms=by_ms)

        what = f"the progress of {self._group}"
        self._brokers.run(self._brokers.retrying(what, once, timeout_ms=max(0, by_ms - now_ms())))

    def _failed(self, error: Exception, at_ms: int) -> None:
        """Note the failure of a report that began at `at_ms`."""
        over_ms = now_ms()
        self._resting_until_ms = over_ms + max(PROGRESS_PAUSE_MS, PROGRESS_PAUSE_FACTOR * (over_ms - at_ms))
        if self._failing_since_ms is None:
            self._failing_since_ms = at_ms
        may_pass = isinstance(error, HeadraceError) and error.retriable
        if self._is_warned or (may_pass and over_ms - self._failing_since_ms < PROGRESS_PATIENCE_MS):
            return
        self._is_warned = True
        said, trace = (error.message, None) if isinstance(error, HeadraceError) else (repr(error), error)
        _log.warning(
            "group %s does not show how far the query is, which goes on: %s", self._group, said, exc_info=trace
        )

    def _succeeded(self, offsets: Mapping[PartitionKey, int]) -> None:
        self._told, self._told_until_ms = dict(offsets), now_ms() + PROGRESS_REPEAT_MS
        if self._is_warned:
            _log.warning("group %s shows again how far the query is", self._group)
        self._failing_since_ms, self._is_warned = None, False
