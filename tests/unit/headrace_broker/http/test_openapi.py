"""The served OpenAPI document agrees with the code: paths, parameters, limits, codes. `make openapi-check` tries it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import MultiDict, MultiMapping

from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidRequestError
from headrace.core.types import NAME_LENGTH_MAX, Acks
from headrace.http2.async_transport import AsyncTransport
from headrace_broker.cluster.view import ClusterView
from headrace_broker.http import parameters
from headrace_broker.http.app import broker_app, openapi
from headrace_broker.http.parameters import FETCH_WAIT_MS_MAX
from headrace_broker.http.proxy import Proxy
from headrace_broker.http.record_bodies import BodyFormat
from headrace_broker.metrics import Metrics
from headrace_broker.partition.queries import Edge, ValueFormat
from tests.support.components import NoPartitions, components
from tests.support.partition_sets import seat

_RECORDS = "/v1/namespaces/{namespace}/topics/{topic}/partitions/{partition}/records"
_METHODS = ("get", "put", "post", "delete")


@pytest.fixture
async def document() -> dict[str, Any]:
    response = await openapi(make_mocked_request("GET", "/openapi.json"))
    assert isinstance(response, web.Response)
    assert isinstance(response.body, bytes)
    parsed: dict[str, Any] = json.loads(response.body)
    return parsed


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield method.upper(), path, item[method]


async def test_should_have_every_route_and_no_other(document: dict[str, Any]) -> None:
    async with AsyncTransport() as transport:
        app = broker_app(components(seat(0), ClusterView("x"), NoPartitions(), Proxy(transport), Metrics()))
    routes = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method not in ("HEAD", "OPTIONS")
    }
    assert routes == {(method, path) for method, path, _ in operations(document)}


async def test_should_say_of_every_operation_that_foreign_pages_are_refused(document: dict[str, Any]) -> None:
    """By what they call the broker, whatever they ask; integration/broker/test_web_pages.py tries it."""
    assert [path for _, path, operation in operations(document) if "403" not in operation["responses"]] == []
    assert "ForeignPage" in str(document["components"]["responses"]["Forbidden"])


@pytest.mark.parametrize(
    ("operation_id", "parse"),
    [
        ("getCluster", parameters.parse_no_query),
        ("listTopics", parameters.parse_no_query),
        ("getTopic", parameters.parse_no_query),
        ("getHeld", parameters.parse_held),
        ("openSession", parameters.parse_no_query),
        ("produceToTopic", parameters.parse_spread),
        ("produce", parameters.parse_produce),
        ("fetch", parameters.parse_fetch),
        ("deleteRecords", parameters.parse_delete),
        ("findOffset", parameters.parse_offsets),
        ("leaveGroup", parameters.parse_leave),
        ("joinGroup", parameters.parse_no_query),
    ],
)
def test_should_have_every_query_parameter_that_is_taken(
    document: dict[str, Any], operation_id: str, parse: Callable[[MultiMapping[str]], object]
) -> None:
    operation = next(each for _, _, each in operations(document) if each["operationId"] == operation_id)
    listed = [resolved(document, parameter) for parameter in operation.get("parameters", [])]
    described = {parameter["name"]: parameter.get("required") for parameter in listed if parameter["in"] == "query"}
    given = {name: "0" for name, is_required in described.items() if is_required}
    with pytest.raises(InvalidRequestError) as refusal:
        parse(MultiDict({**given, "nope": ""}))
    taken = refusal.value.message.partition("it takes ")[2].split(", ")
    assert sorted(name for name in taken if name != "none") == sorted(described)


def test_should_have_the_limits_that_are_enforced(document: dict[str, Any]) -> None:
    fetch = {
        parameter["name"]: parameter["schema"]
        for _, _, operation in operations(document)
        if operation["operationId"] == "fetch"
        for parameter in operation["parameters"]
        if "name" in parameter
    }
    shared, schemas = document["components"]["parameters"], document["components"]["schemas"]
    assert fetch["maxBytes"]["maximum"] == limits.FETCH_BYTES_MAX
    assert fetch["maxBytes"]["default"] == limits.FETCH_BYTES_DEFAULT
    assert fetch["maxRecords"]["maximum"] == limits.FETCH_RECORDS_MAX
    assert fetch["maxWaitMs"]["maximum"] == FETCH_WAIT_MS_MAX
    assert shared["timeoutMs"]["schema"]["maximum"] == limits.PRODUCE_TIMEOUT_MS_MAX
    assert shared["timeoutMs"]["schema"]["default"] == limits.PRODUCE_TIMEOUT_MS_DEFAULT
    assert schemas["Partition"]["maximum"] == limits.TOPIC_PARTITIONS_MAX - 1
    assert schemas["TopicName"]["maxLength"] == NAME_LENGTH_MAX
    assert schemas["Record"]["properties"]["headers"]["oneOf"][0]["maxProperties"] == limits.RECORD_HEADERS_MAX


def test_should_have_the_choices_that_are_taken(document: dict[str, Any]) -> None:
    fetch = document["paths"][_RECORDS]["get"]
    produce = document["paths"][_RECORDS]["post"]
    formats = next(each for each in fetch["parameters"] if each.get("name") == "valueFormat")
    assert set(document["components"]["parameters"]["acks"]["schema"]["enum"]) == set(Acks)
    assert set(formats["schema"]["enum"]) == set(ValueFormat)
    assert set(document["components"]["schemas"]["Edge"]["enum"]) == set(Edge)
    assert set(produce["requestBody"]["content"]) == set(BodyFormat)
    assert set(fetch["responses"]["200"]["content"]) == set(BodyFormat)


def test_should_give_every_code_the_status_that_it_has(document: dict[str, Any]) -> None:
    statuses = {error.code: error.status for error in subclasses(HeadraceError)}
    for name, response in document["components"]["responses"].items():
        if "application/problem+json" not in response["content"]:
            continue
        fields = response["content"]["application/problem+json"]["schema"]["allOf"][1]["properties"]
        codes = fields["code"].get("enum", [fields["code"].get("const")])
        assert {statuses[code] for code in codes} == {fields["status"]["const"]}, name


def test_should_give_every_answer_under_its_own_status(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            content = resolved(document, response)["content"]
            if int(status) >= 400:
                fields = content["application/problem+json"]["schema"]["allOf"][1]["properties"]
                assert fields["status"]["const"] == int(status), f"{method} {path}"


def resolved(document: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    """`item`, or what it refers to."""
    found: Any = item
    while "$ref" in found:
        path, found = found["$ref"], document
        for name in path.removeprefix("#/").split("/"):
            found = found[name]
    return dict(found)


def subclasses(root: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    for subclass in root.__subclasses__():
        yield subclass
        yield from subclasses(subclass)
