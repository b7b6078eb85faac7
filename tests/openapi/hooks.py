"""What schemathesis cannot know of Headrace: batches, lines of JSON, answers in several forms, waiting, HTTP/2.

Loaded by schemathesis in its own process (`SCHEMATHESIS_HOOKS`). `HEADRACE_PROTOCOL` names the protocol, `http/1.1` or
`h2`; `HEADRACE_TOPIC_UID` the uid of the topic `flights`, which has two partitions in their first leader epoch.
"""

import json
import os
from dataclasses import replace
from itertools import cycle
from typing import Any, TypeAlias

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.core.parameters import ParameterLocation

from headrace.core.errors import CorruptBatchError
from headrace.core.limits import BATCH_BYTES_MAX
from headrace.core.records.columns import columns_of
from headrace.core.records.header import Compression
from headrace.core.records.raw import split_batches
from headrace.core.records.time_rules import TIMESTAMP_MS_MAX
from tests.openapi.adapters import BrokerAdapter, Http2Adapter
from tests.support.batches import RECORDS, encoded

_Case: TypeAlias = "schemathesis.Case[Any]"
_BATCHES = "application/vnd.headrace.batch"
_NDJSON = "application/x-ndjson"
_WAIT_MS_MAX = 100
_IS_REAL = cycle([True, True, True, False])
_PARTITIONS = cycle([0, 1])
_TAKEN = RECORDS.map(lambda record: replace(record, timestamp_ms=record.timestamp_ms % (TIMESTAMP_MS_MAX + 1)))
"""Records of times that a topic takes."""
_ACCEPT = cycle(["application/json", _NDJSON, _BATCHES, "*/*"])

schemathesis.openapi.media_type(
    _BATCHES,
    st.lists(
        st.builds(encoded, st.lists(_TAKEN, min_size=1, max_size=3).map(columns_of), st.sampled_from(Compression)),
        min_size=1,
        max_size=3,
    ).map(b"".join),
)

# Sessions mount what this name stands for; there is no other way to give them an adapter.
_ADAPTERS: dict[str, type[Any]] = {"http/1.1": BrokerAdapter, "h2": Http2Adapter}
requests.sessions.HTTPAdapter = _ADAPTERS[os.environ["HEADRACE_PROTOCOL"]]  # type: ignore[attr-defined]


@schemathesis.serializer(_NDJSON)
def lines_of(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """A list as a line an item; anything else as a line that is no record."""
    items = value if isinstance(value, list) else [[value]]
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


@schemathesis.deserializer(_NDJSON)
def items_of(_: schemathesis.DeserializationContext, response: schemathesis.Response) -> Any:
    return [json.loads(line) for line in response.content.splitlines() if line]


@schemathesis.deserializer(_BATCHES)
def text_of(_: schemathesis.DeserializationContext, __: schemathesis.Response) -> str:
    """A string, as the schema says of bytes."""
    return ""


@schemathesis.check
def batches_are_whole(_: schemathesis.CheckContext, response: schemathesis.Response, __: _Case) -> None:
    """Both checksums of every batch are right, and nothing is left over."""
    if response.content and response.headers.get("content-type") == [_BATCHES]:
        try:
            split_batches([response.content], batch_bytes_max=BATCH_BYTES_MAX)
        except CorruptBatchError as error:
            raise AssertionError(error.message) from error


@schemathesis.hook
def before_call(_: schemathesis.HookContext, case: _Case, __: dict[str, Any]) -> None:
    """Give requests the values that are there, three times of four, and none a reason to wait.

    What was made invalid on purpose stays as it is. An invalid body goes to a valid place: it would not be looked at
    otherwise.
    """
    valid = (
        set() if case.meta is None else {each for each, made in case.meta.components.items() if made.mode.is_positive}
    )
    if next(_IS_REAL) or not case_is_valid(case):
        if ParameterLocation.QUERY in valid:
            use_what_is_there(case.query)
        if ParameterLocation.PATH in valid:
            go_to_a_partition(case.path_parameters)
    if ParameterLocation.BODY in valid and isinstance(case.body, dict):
        case.body = say_what_a_group_can_take(case.body)
        if case.query.get("type") == "Spark":
            case.body.pop("memberId", None)  # such a group has no members
    if ParameterLocation.QUERY in valid and case.operation.definition.raw.get("operationId") == "fetch":
        case.headers.setdefault("Accept", next(_ACCEPT))
        wait_for_nothing(case.query)


def case_is_valid(case: _Case) -> bool:
    return case.meta is not None and case.meta.generation.mode.is_positive


def go_to_a_partition(path: dict[str, Any]) -> None:
    real = {"namespace": "default", "topic": "flights", "partition": next(_PARTITIONS), "group": "billing"}
    path.update({name: value for name, value in real.items() if name in path})


def use_what_is_there(query: dict[str, Any]) -> None:
    real = {"topicUid": os.environ["HEADRACE_TOPIC_UID"], "leaderEpoch": 1, "offset": "earliest", "beforeOffset": 1}
    query.update({name: value for name, value in real.items() if name in query})


def say_what_a_group_can_take(body: dict[str, Any]) -> dict[str, Any]:
    """No schema says which expressions are regular, what was staged, or as which instance a member has joined. A
    heartbeat would wait for news that nobody makes; 3.0 is an integer to a schema alone."""
    said: dict[str, Any] = without_fractions(body)
    if said.get("topicPattern"):
        said["topicPattern"] = "fl.*"
    if said.get("instanceId"):
        said["instanceId"] = ""
    if said.get("waitMs"):
        said["waitMs"] = min(said["waitMs"], _WAIT_MS_MAX)
    if said.get("shares"):
        said["shares"] = []  # which no broker has seen staged
    return said


def without_fractions(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_fractions(each) for name, each in value.items()}
    if isinstance(value, list):
        return [without_fractions(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def wait_for_nothing(query: dict[str, Any]) -> None:
    """A watch takes no `minBytes` and no `maxWaitMs`; others would wait for bytes that nobody writes."""
    if query.get("watch") in (True, "true"):
        query.pop("minBytes", None)
        query.pop("maxWaitMs", None)
    elif int(query.get("maxWaitMs", 0)) > _WAIT_MS_MAX:
        query["minBytes"] = 0
