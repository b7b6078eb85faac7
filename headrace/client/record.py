"""The records, positions and options that the SDK's users hold and hand in, and the checks of their values.

`Record` and `RecordMetadata` are named tuples because a client makes millions of them: the interpreter builds a tuple
from columns in C, a frozen dataclass field by field in Python.

Every key, value, header, time, offset, topic and group name is checked here, before a record joins a batch: one that
cannot be encoded would take the others down with it. A bad value raises TypeError or LocalError with one sentence that
says what to give instead. NumPy is loaded by the one check that needs it, because commands load this module without
arrays.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from inspect import signature
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Union

from headrace.core.errors import LocalError
from headrace.core.limits import RECORD_HEADERS_MAX
from headrace.core.types import group_name_problem, topic_name_problem

if TYPE_CHECKING:
    import numpy as np


Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Bytes: TypeAlias = bytes | bytearray | memoryview | str | None
_TIMESTAMP_MS_MAX = 2**63 - 1
OFFSET_MAX = 2**63 - 1
_OTHER_NAMES = {
    "bootstrap_servers": "server",
    "servers": "server",
    "brokers": "server",
    "compression_type": "compression",
    "batch_size": "batch_bytes",
    "buffer_memory": "buffer_bytes",
    "group_id": "group",
    "group_instance_id": "instance_id",
    "enable_auto_commit": "auto_commit",
    "auto_offset_reset": "start (and on_out_of_range)",
    "topic": "the topics' names as they are: Consumer('flights')",
    "topics": "the topics' names as they are: Consumer('flights')",
}
"""The names of options in other clients, with ours."""
Time: TypeAlias = Union[int, datetime, "np.datetime64"]
HeadersInput: TypeAlias = Iterable[tuple[str, Bytes]] | Mapping[str, Bytes]


class TopicPartition(NamedTuple):
    """A partition by its topic's name; the namespace is the client's."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


Place: TypeAlias = int | TopicPartition
"""A partition as users name it: a number where the topic is clear, or the topic and the number."""


class Record(NamedTuple):
    """One record as a consumer read it. A null `value` is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """The milliseconds since 1970 UTC: the producer's, or the broker's where the topic says `LogAppendTime`."""
    key: bytes | None
    value: bytes | None
    headers: Headers


class RecordMetadata(NamedTuple):
    """The place where a record was written."""

    topic: str
    partition: int
    offset: int
    """The offset; -1 with `acks=0`: no broker said where."""


class BatchMetadata(NamedTuple):
    """The place of a run of `send_batch`'s records: consecutive offsets of one partition, in the records' order."""

    topic: str
    partition: int
    base_offset: int
    """The offset; -1 with `acks=0`: no broker said where."""
    record_count: int


class GroupOffset(NamedTuple):
    """The offset that a group has committed in a partition."""

    offset: int
    """The offset of the next record to read."""
    metadata: str
    """The text that the member committed beside it."""
    committed_ms: int
    """The milliseconds since 1970 UTC, by the coordinator's clock."""


def as_bytes(name: str, value: Bytes) -> bytes | None:
    """Return `value` as bytes: text as UTF-8, None stays None. Raises TypeError with the remedy for anything else."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return as_utf8(name, value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(wrong_type(name, value))


def as_utf8(name: str, text: str) -> bytes:
    """Return the text as UTF-8. Raises LocalError where it has half of a surrogate pair, which is no character."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        from headrace.core.records.arrays import half_surrogate  # values are handed in without arrays as a rule

        raise LocalError(half_surrogate(name, error)) from None


def check_offset(name: str, offset: object) -> int:
    """Return an offset that a user gave. Raises TypeError or LocalError."""
    if isinstance(offset, bool) or not hasattr(offset, "__index__"):
        raise TypeError(f"{name} is {type(offset).__name__}: give a whole number")
    number = index(offset)
    if not 0 <= number <= OFFSET_MAX:
        raise LocalError(f"{name} is {number}: it must be 0 or more, that of the next record to read, and below 2^63")
    return number


def as_topic(topic: object) -> str:
    """Return a topic's name as text. Raises TypeError, and LocalError where no topic can have that name."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic is {type(topic).__name__}, not str: give its name, for example 'flights'")
    if not topic:
        raise LocalError("the topic's name is empty: give one, for example 'flights'")
    problem = topic_name_problem(topic)
    if problem is not None:
        raise LocalError(problem)
    return topic


def as_group(group: object) -> str:
    """Return a consumer group's name as text. Raises TypeError, and LocalError where no group can have that name."""
    if not isinstance(group, str):
        raise TypeError(f"group is {type(group).__name__}, not str: give the group's name, for example 'billing'")
    problem = group_name_problem(group)
    if problem is not None:
        raise LocalError(problem)
    return group


def wrong_type(name: str, value: object) -> str:
    """Return the error message for a `value` that is neither bytes nor text."""
    said = name if name.isidentifier() else "value"
    return (
        f"{name} is {type(value).__name__}, not bytes, str or None: turn it into bytes first,"
        f" for example json.dumps({said}) or str({said})"
    )


def check_options(made: str, init: Callable[..., None], options: Iterable[str]) -> None:
    """Raise TypeError where `made` has no option of such a name; the message has the names that may be meant."""
    known = [name for name, each in signature(init).parameters.items() if each.kind is not each.VAR_POSITIONAL][1:]
    for name in options:
        if name not in known:
            close = [_OTHER_NAMES[name]] if name in _OTHER_NAMES else get_close_matches(name, known, n=2)
            meant = f"do you mean {' or '.join(close)}?" if close else f"it has {', '.join(known)}"
            raise TypeError(f"{made} has no option {name}: {meant}")


def as_headers(headers: HeadersInput) -> Headers:
    """Return headers as they are stored: pairs in the order given, duplicates kept. Raises TypeError or LocalError."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked = tuple(_header(pair) for pair in pairs)
    if len(checked) > RECORD_HEADERS_MAX:
        raise LocalError(f"a record has {len(checked)} headers; the limit is {RECORD_HEADERS_MAX}")
    return checked


def as_timestamp_ms(time: Time, name: str = "timestamp_ms") -> int:
    """Return the time as it is stored. Raises TypeError, and LocalError before 1970 or if 64 bits do not hold it."""
    try:
        # Other types than numbers are told apart below; Python takes True for a number.
        number = _moment_ms(time, name) if isinstance(time, bool) else index(time)  # type: ignore[arg-type]
    except TypeError:
        number = _moment_ms(time, name)
    if not 0 <= number <= _TIMESTAMP_MS_MAX:
        raise LocalError(f"{name} is {number}: it must be milliseconds since 1970-01-01 UTC, from 0 to 2^63-1")
    return number


def datetime_ms(moment: datetime) -> int:
    """Return milliseconds since 1970, rounded down; without a zone it is local time, as in `datetime.timestamp()`.

    A pandas Timestamp without a zone is UTC: its own `timestamp()` says so.
    """
    return round(moment.timestamp() * 1_000_000) // 1_000


def _moment_ms(time: object, name: str) -> int:
    try:
        if isinstance(time, datetime):
            return datetime_ms(time)
        import numpy as np  # A program without such times needs no arrays for them.

        if isinstance(time, np.datetime64) and not np.isnat(time):
            return int(time.astype("datetime64[ms]").astype(np.int64))
    except (ValueError, OverflowError) as error:
        raise LocalError(f"{name} is {time}: it must be a time since 1970-01-01 UTC") from error
    raise TypeError(f"{name} is {type(time).__name__}: give whole milliseconds since 1970-01-01 UTC, or a datetime")


def _header(pair: Any) -> tuple[str, bytes | None]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"a header is {pair!r}: headers are (name, value) pairs, or a mapping")
    name, value = pair
    if not isinstance(name, str):
        raise TypeError(f"a header's name is {type(name).__name__}, not str: headers are (name, value) pairs")
    as_utf8("a header's name", name)
    return name, as_bytes(f"header {name!r}", value)
