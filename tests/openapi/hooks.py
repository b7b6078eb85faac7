"""What schemathesis cannot know of Headrace: batches, lines of JSON, answers in several forms, waiting, HTTP/2.

Loaded by schemathesis in its own process (`SCHEMATHESIS_HOOKS`). `HEADRACE_PROTOCOL` names the protocol, `http/1.1` or
`h2`.
"""

import json
import os
from itertools import cycle
from typing import Any

import requests
import schemathesis
from hypothesis import strategies as st

from headrace.core.limits import BATCH_BYTES_MAX
from headrace.core.records.columns import columns_of
from headrace.core.records.header import Compression
from headrace.core.records.raw import split_batches
from tests.openapi.adapters import BrokerAdapter, Http2Adapter
from tests.support.batches import RECORDS, encoded

_BATCHES = "application/vnd.headrace.batch"
_NDJSON = "application/x-ndjson"
_WAIT_MS_MAX = 100
_ACCEPT = cycle(["application/json", _NDJSON, _BATCHES, "*/*"])

schemathesis.openapi.media_type(
    _BATCHES,
    st.lists(
        st.builds(encoded, st.lists(RECORDS, min_size=1, max_size=3).map(columns_of), st.sampled_from(Compression)),
        min_size=1,
        max_size=3,
    ).map(b"".join),
)

# Sessions mount what this name stands for; there is no other way to give them an adapter.
_ADAPTERS: dict[str, type[Any]] = {"http/1.1": BrokerAdapter, "h2": Http2Adapter}
requests.sessions.HTTPAdapter = _ADAPTERS[os.environ["HEADRACE_PROTOCOL"]]  # type: ignore[attr-defined]


@schemathesis.hook
def before_load_schema(_: schemathesis.HookContext, document: dict[str, Any]) -> None:
    """Put the schemas of parameters in place of the references to them, which dictionaries do not follow (4.32)."""
    parameters = list(document["components"]["parameters"].values())
    for path in document["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict):
                parameters += operation.get("parameters", [])
    for parameter in parameters:
        if "schema" in parameter:
            parameter["schema"] = inlined(document, parameter["schema"])


def inlined(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        target: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return target
    if "oneOf" in schema:
        return {**schema, "oneOf": [inlined(document, each) for each in schema["oneOf"]]}
    return schema


@schemathesis.serializer(_NDJSON)
def lines_of(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """A list as a line an item; anything else as a line that is no record."""
    items = value if isinstance(value, list) else [[value]]
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


@schemathesis.deserializer(_NDJSON)
def items_of(_: schemathesis.DeserializationContext, response: schemathesis.Response) -> Any:
    return [json.loads(line) for line in response.content.splitlines() if line]


@schemathesis.deserializer(_BATCHES)
def whole_batches(_: schemathesis.DeserializationContext, response: schemathesis.Response) -> str:
    """Fails unless both checksums of every batch are right and nothing is left over."""
    split_batches([response.content], batch_bytes_max=BATCH_BYTES_MAX)
    return ""


@schemathesis.hook
def before_call(_: schemathesis.HookContext, case: "schemathesis.Case[Any]", __: dict[str, Any]) -> None:
    """Ask for every form of answer in turn; let no request wait for records that nobody will write."""
    if case.operation.definition.raw.get("operationId") != "fetch" or not isinstance(case.query, dict):
        return
    if "Accept" not in case.headers:
        case.headers["Accept"] = next(_ACCEPT)
    if case.query.get("watch") in (True, "true"):
        for name in ("minBytes", "maxWaitMs"):
            case.query.pop(name, None)
    wait_ms = case.query.get("maxWaitMs")
    if isinstance(wait_ms, int) and wait_ms > _WAIT_MS_MAX:
        case.query["minBytes"] = 0
