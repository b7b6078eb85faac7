"""How a consumer takes part in a group: the arguments of its constructor that are about that."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from headrace.client.record import TopicPartition
from headrace.client.values import as_group, as_topic, as_utf8
from headrace.core.errors import InvalidRequestError, LocalError
from headrace.core.limits import (
    AUTO_COMMIT_INTERVAL_MS_DEFAULT,
    INSTANCE_ID_LENGTH_MAX,
    MAX_POLL_INTERVAL_MS_DEFAULT,
    REBALANCE_TIMEOUT_MS_MAX,
    REBALANCE_TIMEOUT_MS_MIN,
)

if TYPE_CHECKING:
    from headrace.core.groups.identity import MemberId
    from headrace.core.groups.subscriptions import Subscription

Callback: TypeAlias = Callable[[list[TopicPartition]], Any] | None
"""Of an `AsyncConsumer` it may be a coroutine function."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Called by whoever reads, from within his loop: before records of new partitions, after the last of old ones."""

    assigned: Callback = None
    revoked: Callback = None
    lost: Callback = None

    def of_lost(self) -> Callback:
        """Without one of its own, what is lost counts as revoked: what is kept for each partition must go."""
        return self.lost or self.revoked


@dataclass(frozen=True, slots=True)
class GroupOptions:
    group: str
    subscription: "Subscription"
    instance_id: str = ""
    """Empty: not static."""
    auto_commit_interval_ms: int | None = AUTO_COMMIT_INTERVAL_MS_DEFAULT
    """None: nothing is committed but what its user commits."""
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS_DEFAULT
    """How long its user may keep what he was handed; and so how long he has to give partitions up."""
    callbacks: Callbacks = Callbacks()


@dataclass(frozen=True, slots=True)
class Attending:
    """The arguments as they were given; those of groups mean nothing without one."""

    pattern: str | None = None
    instance_id: str | None = None
    auto_commit: bool = True
    auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS_DEFAULT
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS_DEFAULT
    on_assigned: Callback = None
    on_revoked: Callback = None
    on_lost: Callback = None


def new_member_id() -> "MemberId":
    """Of one life of a member. Made up by itself, so that a join whose answer was lost is known again."""
    from headrace.core.groups.identity import MemberId

    return MemberId(str(uuid4()))


def group_options(topics: Sequence[str], group: str | None, given: Attending) -> GroupOptions | None:
    """None: no group. Raises TypeError and LocalError, each with the remedy."""
    if group is None:
        _check_without(given)
        return None
    _check_times(given)
    interval_ms = given.auto_commit_interval_ms if given.auto_commit else None
    callbacks = Callbacks(given.on_assigned, given.on_revoked, given.on_lost)
    return GroupOptions(
        as_group(group),
        _subscription(topics, given.pattern or ""),
        _instance_id(given.instance_id),
        interval_ms,
        given.max_poll_interval_ms,
        callbacks,
    )


def _check_without(given: Attending) -> None:
    """What only members of groups have."""
    for name, value in (
        ("pattern", given.pattern),
        ("instance_id", given.instance_id),
        ("on_assigned", given.on_assigned),
        ("on_revoked", given.on_revoked),
        ("on_lost", given.on_lost),
    ):
        if value is not None:
            raise LocalError(f"{name} is given without a group: add group='billing', or leave it out")


def _check_times(given: Attending) -> None:
    if given.auto_commit_interval_ms < 1:
        raise LocalError(
            f"auto_commit_interval_ms is {given.auto_commit_interval_ms}: it must be 1 or more; auto_commit=False"
            " leaves committing to you"
        )
    if not REBALANCE_TIMEOUT_MS_MIN <= given.max_poll_interval_ms <= REBALANCE_TIMEOUT_MS_MAX:
        raise LocalError(
            f"max_poll_interval_ms is {given.max_poll_interval_ms}: it must be from {REBALANCE_TIMEOUT_MS_MIN} to"
            f" {REBALANCE_TIMEOUT_MS_MAX}"
        )


def _subscription(topics: Sequence[str], pattern: str) -> "Subscription":
    from headrace.core.groups.subscriptions import Subscription  # every consumer loads this module, members this

    for topic in topics:
        as_topic(topic)
    as_utf8("pattern", pattern)
    if not topics and not pattern:
        raise LocalError("no topic is given: Consumer('flights', group='billing'), or pattern='flights-.*'")
    try:
        return Subscription.parse(topics, pattern)
    except InvalidRequestError as error:
        raise LocalError(error.message) from None


def _instance_id(instance_id: str | None) -> str:
    if instance_id is None:
        return ""
    if not instance_id or len(instance_id) > INSTANCE_ID_LENGTH_MAX:
        raise LocalError(
            f"instance_id has {len(instance_id)} characters: give 1 to {INSTANCE_ID_LENGTH_MAX}, for example the"
            " name of the Pod, or leave it out"
        )
    as_utf8("instance_id", instance_id)
    return instance_id
