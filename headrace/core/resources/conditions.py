"""The types of conditions that Headrace writes into the status of its resources. `control.conditions` makes them."""

from enum import StrEnum


class ConditionType(StrEnum):
    READY = "Ready"
    UNDER_REPLICATED = "UnderReplicated"
    OFFLINE = "Offline"
    REASSIGNING = "Reassigning"
    PAUSED = "Paused"
    PREFERRED_LEADERS = "PreferredLeaders"
    """Whether all that the annotation asks for can be done; only where there is one."""
    IN_USE = "InUse"
    """Of the internal topic."""
    OFFSETS_RESET = "OffsetsReset"
    """Of a ConsumerGroup, whose `spec.resetOffsets` is to be carried out."""
