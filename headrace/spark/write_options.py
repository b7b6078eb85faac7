"""The options of writing: all that `df.write` and `df.writeStream` with `format("headrace")` take. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self, cast, get_args

from headrace.client.producer.writer import CompressionName
from headrace.client.record import as_topic
from headrace.core.errors import LocalError
from headrace.core.staging.identity import writer_name_problem
from headrace.spark.options import CONNECTION_OPTIONS, Connection, check_names, choice, optional_number, text

_OF_SPARK = ("checkpointLocation", "queryName")
"""Which Spark passes on."""
WRITE_OPTIONS = (*CONNECTION_OPTIONS, *_OF_SPARK, "topic", "deliveryGuarantee", "compression", "txnAppId", "txnVersion")


class Guarantee(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    """What a batch writes becomes visible by one decision, whatever was tried before."""
    AT_LEAST_ONCE = "at-least-once"
    """Rows are written as they come: what is tried again may be there twice."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What names a write of a batch job, so that its repetition is known: as Delta Lake's options of these names."""

    app_id: str
    version: int

    @classmethod
    def of(cls, options: Mapping[str, str], guarantee: Guarantee) -> Self | None:
        """None where options name none. Raises LocalError."""
        app_id, version = text(options, "txnAppId"), optional_number(options, "txnVersion", least=0)
        if app_id is None and version is None:
            return None
        if app_id is None or version is None:
            missing = "txnAppId" if app_id is None else "txnVersion"
            raise LocalError(f"{missing} is missing: txnAppId and txnVersion name a write together")
        if guarantee is not Guarantee.EXACTLY_ONCE:
            raise LocalError(f"txnAppId is {app_id!r}, but deliveryGuarantee={guarantee} writes what is repeated again")
        problem = writer_name_problem("txnAppId", app_id)
        if problem is not None:
            raise LocalError(problem)
        return cls(app_id, version)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    connection: Connection
    topic: str | None
    """For all rows; else each row says its own."""
    guarantee: Guarantee
    compression: CompressionName = "none"
    transaction: Transaction | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        check_names(options, WRITE_OPTIONS, "the options of writing")
        topic = text(options, "topic")
        guarantee = choice(options, "deliveryGuarantee", *Guarantee)
        compression = cast("CompressionName", choice(options, "compression", *get_args(CompressionName)))
        to = None if topic is None else as_topic(topic)
        transaction = Transaction.of(options, Guarantee(guarantee))
        return cls(Connection.of(options), to, Guarantee(guarantee), compression, transaction)
