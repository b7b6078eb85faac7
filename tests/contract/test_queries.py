"""Query parameters of a list or watch that make no sense, and what is said of them."""

import pytest

from tests.support.api_server import Space

_NEEDS_VERSION = "resourceVersionMatch is forbidden unless resourceVersion is provided"


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ({"limit": "nonsense"}, 'strconv.ParseInt: parsing "nonsense": invalid syntax'),
        ({"watch": "true", "timeoutSeconds": "1.5"}, 'strconv.ParseInt: parsing "1.5": invalid syntax'),
        (
            {"resourceVersion": "-1"},
            'invalid resource version: resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing "-1": '
            "invalid syntax",
        ),
    ],
)
async def test_should_refuse_what_is_no_number(space: Space, query: dict[str, str], complaint: str) -> None:
    answer = await space.api.get(space.path("topics"), query)
    assert (answer.status, answer.reason, answer.message) == (400, "BadRequest", complaint)


@pytest.mark.parametrize(
    ("query", "messages"),
    [
        ({"resourceVersionMatch": "Exact"}, {f"Forbidden: {_NEEDS_VERSION}"}),
        (
            {"resourceVersionMatch": "x"},
            {
                f"Forbidden: {_NEEDS_VERSION}",
                'Unsupported value: "x": supported values: "Exact", "NotOlderThan", ""',
            },
        ),
        (
            {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
            {'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'},
        ),
    ],
)
async def test_should_refuse_parameters_that_do_not_go_together(
    space: Space, query: dict[str, str], messages: set[str]
) -> None:
    answer = await space.api.get(space.path("topics"), query)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == {("resourceVersionMatch", _reason(message), message) for message in messages}


@pytest.mark.parametrize("flag", ["maybe", "1", "True"])
async def test_should_watch_unless_it_is_plainly_told_not_to(space: Space, flag: str) -> None:
    answer = await space.api.get(space.path("topics"), {"watch": flag, "timeoutSeconds": "1"})
    assert (answer.status, answer.body) == (200, {})


@pytest.mark.parametrize("flag", ["false", "0", "False"])
async def test_should_list_when_it_is_told_not_to_watch(space: Space, flag: str) -> None:
    answer = await space.api.get(space.path("topics"), {"watch": flag})
    assert answer.body["kind"] == "TopicList"


def _reason(message: str) -> str:
    return "FieldValueForbidden" if message.startswith("Forbidden") else "FieldValueNotSupported"
