"""The options of reading: all that `spark.read` and `spark.readStream` with `format("headrace")` take. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from headrace.client.record import as_group
from headrace.core.errors import LocalError
from headrace.core.limits import SPARK_ROWS_PER_TRIGGER_DEFAULT, SPARK_TRIGGER_DELAY_MS_DEFAULT
from headrace.core.units import parse_quantity_bytes
from headrace.spark.bounds import EARLIEST, LATEST, Bound, bound_names, bound_of
from headrace.spark.errors import LossPolicy
from headrace.spark.options import (
    CONNECTION_OPTIONS,
    Connection,
    check_names,
    choice,
    duration_ms,
    flag,
    optional_number,
    text,
    whole_number,
)
from headrace.spark.schema import SCHEMA_OPTIONS
from headrace.spark.subscription import SUBSCRIPTION_OPTIONS, Subscription, subscription_of

_BOTH = (
    *CONNECTION_OPTIONS,
    *SUBSCRIPTION_OPTIONS,
    *SCHEMA_OPTIONS,
    *bound_names("starting"),
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
)
_BATCH = (*bound_names("ending"), "pushFilters")
_STREAM = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "onTopicRecreated",
    "group",
)
READ_OPTIONS = (*_BOTH, *_BATCH, *_STREAM)


@dataclass(frozen=True, slots=True)
class BatchOptions:
    connection: Connection
    subscription: Subscription
    start: Bound
    end: Bound
    min_partitions: int | None
    max_records: int | None
    loss: LossPolicy
    pushes_filters: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        _check(options, _STREAM, "a batch query")
        return cls(
            Connection.of(options),
            subscription_of(options),
            bound_of(options, "starting", EARLIEST, excluded=LATEST),
            bound_of(options, "ending", LATEST, excluded=EARLIEST),
            optional_number(options, "minPartitions"),
            optional_number(options, "maxRecordsPerPartition"),
            LossPolicy(flag(options, "failOnDataLoss", default=True)),
            flag(options, "pushFilters", default=False),
        )


@dataclass(frozen=True, slots=True)
class StreamOptions:
    connection: Connection
    subscription: Subscription
    start: Bound
    min_partitions: int | None
    max_records: int | None
    loss: LossPolicy
    max_offsets: int
    """Of a trigger."""
    min_offsets: int
    max_delay_ms: int
    max_bytes: int | None
    group: str | None
    """The ConsumerGroup that shows how far the query is; None: none does."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        _check(options, _BATCH, "a streaming query")
        restarts = choice(options, "onTopicRecreated", "fail", "restart") == "restart"
        return cls(
            Connection.of(options),
            subscription_of(options),
            bound_of(options, "starting", LATEST),
            optional_number(options, "minPartitions"),
            optional_number(options, "maxRecordsPerPartition"),
            LossPolicy(flag(options, "failOnDataLoss", default=True), restarts),
            whole_number(options, "maxOffsetsPerTrigger", SPARK_ROWS_PER_TRIGGER_DEFAULT),
            whole_number(options, "minOffsetsPerTrigger", 0, least=0),
            duration_ms(options, "maxTriggerDelay", SPARK_TRIGGER_DELAY_MS_DEFAULT),
            _max_bytes(options),
            _group(options),
        )


def _check(options: Mapping[str, str], others: tuple[str, ...], what: str) -> None:
    check_names(options, READ_OPTIONS, "the options of reading")
    for name in others:
        if text(options, name) is not None:
            raise LocalError(f"{name} means nothing to {what}: leave it out")


def _group(options: Mapping[str, str]) -> str | None:
    group = text(options, "group")
    return None if group is None else as_group(group)


def _max_bytes(options: Mapping[str, str]) -> int | None:
    name = "maxBytesPerTrigger"
    value = text(options, name)
    if value is None:
        return None
    try:
        size = parse_quantity_bytes(value)
    except ValueError as error:
        raise LocalError(f"{name}: {error}") from error
    if size == 0:
        raise LocalError(f"{name} is 0: write at least 1, for example 64Mi")
    return size
