"""The types of conditions that Headrace writes into the status of its resources. `control.conditions` makes them."""

from enum import StrEnum


class ConditionType(StrEnum):
    READY = "Ready"
    UNDER_REPLICATED = "UnderReplicated"
    OFFLINE = "Offline"
    REASSIGNING = "Reassigning"
    PAUSED = "Paused"
    PREFERRED_LEADERS = "PreferredLeaders"
    """True while all that the annotation asks for can be done; there only where the annotation is."""
    IN_USE = "InUse"
    """A condition of the internal topic."""
    OFFSETS_RESET = "OffsetsReset"
    """A condition of a ConsumerGroup whose `spec.resetOffsets` is to be carried out."""
