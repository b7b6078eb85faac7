"""Lists of some objects: label selectors, field selectors."""

import pytest

from tests.support.api_objects import topic
from tests.support.api_server import Space


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("team=data", ["a"]),
        ("team==data", ["a"]),
        ("team!=data", ["b", "c"]),
        ("team in (data, ops)", ["a", "b"]),
        ("team notin (data)", ["b", "c"]),
        ("team", ["a", "b"]),
        ("!team", ["c"]),
        ("team,tier=1", ["a"]),
        ("team in (data,ops),tier notin (1)", ["b"]),
        ("tier>1", ["b"]),
        ("tier<2", ["a"]),
        ("team=", []),
        ("", ["a", "b", "c"]),
    ],
)
async def test_should_list_what_the_labels_say(space: Space, selector: str, names: list[str]) -> None:
    await space.create("topics", topic("a", labels={"team": "data", "tier": "1"}))
    await space.create("topics", topic("b", labels={"team": "ops", "tier": "2"}))
    await space.create("topics", topic("c"))
    listed = (await space.api.get(space.path("topics"), {"labelSelector": selector})).body["items"]
    assert [item["metadata"]["name"] for item in listed] == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [("metadata.name=a", ["a"]), ("metadata.name!=a", ["b"]), ("metadata.name=a,metadata.namespace=nowhere", [])],
)
async def test_should_list_what_the_fields_say(space: Space, selector: str, names: list[str]) -> None:
    for name in ("a", "b"):
        await space.create("topics", topic(name))
    listed = (await space.api.get(space.path("topics"), {"fieldSelector": selector})).body["items"]
    assert [item["metadata"]["name"] for item in listed] == names


_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_OPERATORS = "in, notin, =, ==, !=, gt, lt"


@pytest.mark.parametrize(
    ("selector", "complaint"),
    [
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a in (b),c,", "found '', expected: identifier after ','"),
        ("a,=b", "found '=', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("(a)", "found '(', expected: !, identifier, or 'end of string'"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a b", f"unable to parse requirement: found 'b', expected: {_OPERATORS}"),
        ("a!b", f"unable to parse requirement: found '!', expected: {_OPERATORS}"),
        ("a=!b", "unable to parse requirement: found '!', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a=_", f'unable to parse requirement: values[0][a]: Invalid value: "_": {_LABEL_VALUE}'),
        ("a&b", f'unable to parse requirement: <nil>: Invalid value: "a&b": {_NAME_PART}'),
        (
            "a/=b",
            f'unable to parse requirement: <nil>: Invalid value: "a/": name part must be non-empty; {_NAME_PART}',
        ),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be "
            "an integer",
        ),
    ],
)
async def test_should_say_what_is_wrong_with_a_label_selector(space: Space, selector: str, complaint: str) -> None:
    answer = await space.api.get(space.path("topics"), {"labelSelector": selector})
    assert (answer.status, answer.reason, answer.message) == (400, "BadRequest", complaint)


@pytest.mark.parametrize("selector", ["a in ()", "a in (b,,c)", "a==", "a in (,)"])
async def test_should_take_nothing_for_an_empty_value(space: Space, selector: str) -> None:
    assert (await space.api.get(space.path("topics"), {"labelSelector": selector})).status == 200


@pytest.mark.parametrize(
    ("selector", "complaint"),
    [
        ("spec.partitions=3", "field label not supported: spec.partitions"),
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("a,b=c", "invalid selector: 'a,b=c'; can't understand 'a'"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
    ],
)
async def test_should_say_what_is_wrong_with_a_field_selector(space: Space, selector: str, complaint: str) -> None:
    answer = await space.api.get(space.path("topics"), {"fieldSelector": selector})
    assert (answer.status, answer.reason, answer.message) == (400, "BadRequest", complaint)


@pytest.mark.parametrize("selector", ["metadata.name=a\\,b", "metadata.name=a,", "metadata.name=a\\=b"])
async def test_should_read_escaped_values_of_fields(space: Space, selector: str) -> None:
    assert (await space.api.get(space.path("topics"), {"fieldSelector": selector})).status == 200
