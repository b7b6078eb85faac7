"""The replacements of deleted rules about the latest offset, data that went back, and the last resort."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.core.control.broker_reports import Epochs, HeldLog, PromisedLog
from headrace.core.control.observed import Broker
from headrace.core.replication.leadership import Contact, Leadership
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import BrokerId, TopicUid


def says_at_once(self: Leadership, label: str, contact: Contact | None = None) -> None:
    """Answer at once, whatever its predecessor may have reported."""
    self._check_in_touch(label, contact)


def out_of_touch(self: Leadership, label: str, contact: Contact | None) -> None:
    """Answer without contact, whichever broker may lead by now."""


def nobody_regressed(brokers: Iterable[Broker]) -> frozenset[TopicUid]:
    return frozenset()


def only_what_is_shown(state: PartitionState, *_: Any) -> Epochs:
    return Epochs(state.leader_epoch, state.partition_epoch)


def last_replica(state: PartitionState, known: Epochs, logs: Mapping[BrokerId, HeldLog]) -> BrokerId | None:
    return next((broker for broker in reversed(state.replicas) if broker in logs), None)


def nobody_blocks(*_: Any) -> str:
    return ""


def tells_no_losses(*_: Any) -> tuple[str, ...]:
    return ()


def the_least(self: PromisedLog, durability: Durability) -> tuple[int, int]:
    return -self.last_epoch, -self.log_end


def why_any(*_: Any) -> str:
    return "it may not be intact"
