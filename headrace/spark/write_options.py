"""The options of writing: all that `df.write` and `df.writeStream` with `format("headrace")` take. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Self, cast, get_args

from headrace.client.values import as_topic
from headrace.client.write_options import CompressionName
from headrace.core.slotted import dataclass
from headrace.spark.options import CONNECTION_OPTIONS, Connection, check_names, choice, text

_OF_SPARK = ("checkpointLocation", "queryName")
"""Which Spark passes on."""
WRITE_OPTIONS = (*CONNECTION_OPTIONS, *_OF_SPARK, "topic", "deliveryGuarantee", "compression")


class Guarantee(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    """What a batch writes becomes visible by one decision, whatever was tried before."""
    AT_LEAST_ONCE = "at-least-once"
    """Rows are written as they come: what is tried again may be there twice."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    connection: Connection
    topic: str | None
    """For all rows; else each row says its own."""
    guarantee: Guarantee
    compression: CompressionName = "none"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        check_names(options, WRITE_OPTIONS, "the options of writing")
        topic = text(options, "topic")
        guarantee = choice(options, "deliveryGuarantee", *Guarantee)
        compression = cast("CompressionName", choice(options, "compression", *get_args(CompressionName)))
        to = None if topic is None else as_topic(topic)
        return cls(Connection.of(options), to, Guarantee(guarantee), compression)
