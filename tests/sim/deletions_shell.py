"""The functions that stand in place of deleted rules of the broker's own `PartitionShell`."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.core.log.group_commit import Sync
from headrace.core.replication import events
from headrace.core.replication.replica import Replica
from headrace.core.types import Acks, LeaderEpoch, Offset
from headrace_broker.partition.queries import ProduceQuery
from headrace_broker.partition.shell import Answered, PartitionShell, Waiters

_APPEND, _CARRY_OUT, _FOLLOW = PartitionShell.append, PartitionShell._carry_out, PartitionShell._follow


def answers_at_once(
    self: PartitionShell, query: ProduceQuery, write: Callable[[LeaderEpoch], Any], answered: Answered
) -> Any:
    """It waits for nothing, whatever was asked for."""
    return _APPEND(self, replace(query, acks=Acks.LEADER), write, answered)


def appends_in_its_first_epoch(
    self: PartitionShell, query: ProduceQuery, write: Callable[[LeaderEpoch], Any], answered: Answered
) -> Any:
    """The epoch is looked up once."""

    def write_anew(epoch: LeaderEpoch) -> Any:
        if not hasattr(self, "_first_epoch"):
            self._first_epoch = epoch  # type: ignore[attr-defined]
        return write(self._first_epoch)  # type: ignore[attr-defined]

    return _APPEND(self, query, write_anew, answered)


def syncs_are_done_at_once(self: PartitionShell) -> None:
    if not self._is_closed:
        self.log.sync(lambda _: None)
        self._step(events.Synced(self.log.log_end_offset))


def failed_syncs_are_done(self: PartitionShell) -> None:
    end = self.log.log_end_offset

    def done(event: events.Synced | events.SyncFailed) -> None:
        self._step(events.Synced(end) if isinstance(event, events.SyncFailed) else event)

    if not self._is_closed:
        self.log.sync(done)


def syncs_what_is_closed(self: PartitionShell) -> None:
    self.log.sync(self._step)


def closes_alone(self: PartitionShell, reason: str) -> None:
    """The core does not hear of it."""
    self._is_closed = True


def answers_twice(self: Waiters, waiters: Iterable[int], error: HeadraceError | None) -> None:
    for waiter in waiters:
        self._answers[waiter](error)
        self._answers.pop(waiter)(error)


def lets_wait(self: PartitionShell, effect: events.Effect) -> None:
    """Nobody is told that an append took too long, or that another leads."""
    if not isinstance(effect, events.Expire | events.Abandon):
        _CARRY_OUT(self, effect)


def wakes_nobody_when_it_resigns(self: PartitionShell, effect: events.Effect) -> None:
    if not isinstance(effect, events.Resign):
        _CARRY_OUT(self, effect)


def tells_no_failure(self: PartitionShell, effect: events.Effect) -> None:
    """The broker does not hear that its disk failed."""
    if isinstance(effect, events.GiveUp):
        effect = events.Abandon(effect.waiters, effect.reason)
    _CARRY_OUT(self, effect)


def wakes_at_the_append(self: PartitionShell, effect: events.Effect) -> None:
    """Readers are woken with the sync that is begun, and not again when it has committed something."""
    if isinstance(effect, Sync):
        self._waiters.wake()
    if not isinstance(effect, events.RaiseHighWatermark):
        _CARRY_OUT(self, effect)


def never_ticks(self: PartitionShell, event: events.Event) -> None:
    for effect in self.replica.step(event, self._clock.now_ms()):
        self._carry_out(effect)


def cuts_nothing(self: PartitionShell, effect: Any) -> None:
    if isinstance(effect, events.Truncate):
        self._step(events.Truncated())
    else:
        _FOLLOW(self, effect)


def reports_what_is_written(self: PartitionShell, effect: Any) -> None:
    """It vouches for what is not on disk yet."""
    if isinstance(effect, events.Report):
        effect = replace(effect, ends=replace(effect.ends, durable_end=effect.ends.log_end))
    _FOLLOW(self, effect)


def remembers_all(self: Replica) -> Offset:
    """The whole high watermark."""
    return self.high_watermark
