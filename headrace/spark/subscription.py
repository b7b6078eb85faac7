"""Which partitions are read: `subscribe`, `subscribePattern` or `assign`, exactly one of them. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headrace.client.record import as_topic
from headrace.core.errors import LocalError
from headrace.spark.options import only_one, text

SUBSCRIPTION_OPTIONS = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Topics:
    """All partitions of these, those that are added too."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicsLike:
    """The same of all topics whose whole name matches, new ones too."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions, and no others."""

    numbers: Mapping[str, tuple[int, ...]]


Subscription: TypeAlias = Topics | TopicsLike | Assigned


def subscription_of(options: Mapping[str, str]) -> Subscription:
    option = only_one(options, *SUBSCRIPTION_OPTIONS)
    value = "" if option is None else text(options, option) or ""
    match option:
        case "subscribe":
            return Topics(_names(value))
        case "subscribePattern":
            return TopicsLike(_pattern(value))
        case "assign":
            return Assigned(_assigned(value))
        case _:
            raise LocalError(
                "nothing says what to read: give subscribe (topics, separated by commas), subscribePattern (a regular"
                ' expression) or assign ({"flights": [0, 1]})'
            )


def _names(value: str) -> tuple[str, ...]:
    names = dict.fromkeys(as_topic(name.strip()) for name in value.split(",") if name.strip())
    if not names:
        raise LocalError(f"subscribe is {value!r}: name topics, separated by commas")
    return tuple(names)


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise LocalError(f"subscribePattern is {value!r}, no regular expression of Python's: {error}") from None
    return value


def _assigned(value: str) -> Mapping[str, tuple[int, ...]]:
    try:
        document = json.loads(value)
        wanted = {as_topic(topic): tuple(sorted({*numbers})) for topic, numbers in document.items()}
    except (ValueError, TypeError, AttributeError):
        wanted = {}
    if not wanted or not all(numbers and all(map(_is_number, numbers)) for numbers in wanted.values()):
        raise LocalError(f'assign is {value!r}: write JSON such as {{"flights": [0, 1]}}')
    return wanted


def _is_number(number: object) -> bool:
    return type(number) is int and number >= 0
