"""Requests about a group as clients send them, and what the answers say. Pure: `core.groups.wire` has the bodies."""

import json
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

from headrace.client.calls import Answer, Call, parse_json
from headrace.core.errors import InvalidRequestError, RemoteError
from headrace.core.groups import wire
from headrace.core.groups.describing import parse_group
from headrace.core.groups.events import HeartbeatReceived, Membership, OffsetsAsked, Request
from headrace.core.groups.identity import GroupName
from headrace.core.groups.sharing import GroupState
from headrace.core.groups.topic_partitions import Names
from headrace.core.limits import GROUP_REQUEST_TIMEOUT_MS
from headrace.core.types import TopicUid

JSON_TYPE = "application/json"
T = TypeVar("T")


def call_of(group: GroupName, request: Request, names: Names, url: str | None) -> Call:
    """To the coordinator's `url` where that is known, else to any broker, which passes it on."""
    method, path, body = wire.call_of(group, request, names)
    wait_ms = request.wait_ms if isinstance(request, HeartbeatReceived) else 0
    content = () if body is None else (json.dumps(body, separators=(",", ":")).encode(),)
    return Call(method, path, GROUP_REQUEST_TIMEOUT_MS + wait_ms, url, content, JSON_TYPE)


def offsets_call(group: GroupName, url: str | None) -> Call:
    return call_of(group, OffsetsAsked(0), {}, url)


def coordinator_call(group: GroupName) -> Call:
    return Call("GET", f"{_path(group)}/coordinator", GROUP_REQUEST_TIMEOUT_MS)


def description_call(group: GroupName, url: str | None) -> Call:
    return Call("GET", _path(group), GROUP_REQUEST_TIMEOUT_MS, url)


def coordinator_url(answer: Answer) -> str | None:
    """None: it has none that is known, and other brokers pass requests on."""
    url = parse_json(answer.body).get("url")
    return url if isinstance(url, str) and url else None


def membership(answer: Answer) -> tuple[Membership, dict[TopicUid, str]]:
    return _understood(wire.parse_membership, answer)


def offsets(answer: Answer) -> tuple[wire.TopicOffset, ...]:
    return _understood(wire.parse_offsets, answer)


def is_stable(answer: Answer, group: GroupName) -> bool:
    """Whether everybody in the group has what it is to have."""
    return _understood(lambda body: parse_group(body, group.namespace), answer).state is GroupState.STABLE


def _understood(parse: Callable[[Any], T], answer: Answer) -> T:
    try:
        return parse(parse_json(answer.body))
    except InvalidRequestError as error:
        raise RemoteError(f"a group's coordinator answers what is none ({error.message}): is it a broker?") from error


def _path(group: GroupName) -> str:
    return f"/v1/namespaces/{quote(group.namespace, safe='')}/groups/{quote(group.name, safe='')}"
