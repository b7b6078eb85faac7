"""Refusals: Kubernetes' `Status` objects, with the very messages that a kube-apiserver sends.

A `Cause` names one field, its value and the rule; `invalid` joins them as Kubernetes' `field.ErrorList` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.dev.api.objects import GroupResource, Object, to_json


@dataclass(frozen=True, slots=True)
class Cause:
    """One rule that one field breaks."""

    reason: str
    message: str
    field: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class StatusError(Exception):
    """An answer other than success: HTTP `code`, and a Status object as its body."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def to_object(self) -> Object:
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return status | {"code": self.code}


class UndecodableError(ValueError):
    """A body cannot be read as an object of its kind; the request decides the Status that it becomes."""


def invalid_value(field: str, value: object, rule: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {to_json(value)}: {rule}", field)


def required(field: str, rule: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value: {rule}" if rule else "Required value", field)


def forbidden_value(field: str, rule: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {rule}", field)


def unsupported_value(field: str, value: object, supported: Sequence[object]) -> Cause:
    listed = ", ".join(to_json(choice) for choice in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {to_json(value)}: supported values: {listed}", field)


def invalid(qualified_kind: GroupResource, name: str, causes: Sequence[Cause]) -> StatusError:
    """Return 422: `qualified_kind` is the kind with its group, as in `Topic.headrace.io`."""
    listed = str(causes[0]) if len(causes) == 1 else f"[{', '.join(map(str, causes))}]"
    details = _details(qualified_kind, name)
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return StatusError(422, "Invalid", f'{qualified_kind} "{name}" is invalid: {listed}', details)


def invalid_options(options_kind: str, *causes: Cause) -> StatusError:
    return invalid(GroupResource("meta.k8s.io", options_kind), "", causes)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def forbidden(resource: GroupResource, name: str, why: str, cause: Cause | None = None) -> StatusError:
    details = _details(resource, name)
    if cause is not None:
        details["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field}]
    return StatusError(403, "Forbidden", f'{resource} "{name}" is forbidden: {why}', details)


def not_found(resource: GroupResource, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{resource} "{name}" not found', _details(resource, name))


def already_exists(resource: GroupResource, name: str) -> StatusError:
    return StatusError(409, "AlreadyExists", f'{resource} "{name}" already exists', _details(resource, name))


def conflict(resource: GroupResource, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def modified(resource: GroupResource, name: str) -> StatusError:
    """Return 409: the resourceVersion that the writer read is not the latest."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def expired(asked: int, oldest: int) -> StatusError:
    """Return 410: the watch history no longer reaches back to `asked`."""
    return StatusError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def too_large(asked: int, current: int) -> StatusError:
    """Return 504: a list was asked to be at least as new as a revision that does not exist yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    listed = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return StatusError(415, "UnsupportedMediaType", message)


def not_acceptable(offered: Sequence[str]) -> StatusError:
    message = f"only the following media types are accepted: {', '.join(offered)}"
    return StatusError(406, "NotAcceptable", message)


def undecodable_patch(patched: Object, why: str) -> StatusError:
    """Return 422: the patched object cannot be read as one."""
    return invalid(GroupResource("", ""), "", [invalid_value("patch", to_json(patched), why)])


def unapplicable_patch() -> StatusError:
    """Return 422: a JSON patch whose path or test does not fit the object. Kubernetes gives no further reason
    either."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def success(resource: GroupResource, name: str, uid: str) -> Object:
    details = _details(resource, name) | {"uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _details(resource: GroupResource, name: str) -> dict[str, Any]:
    members = {"name": name, "group": resource.group, "kind": resource.plural}
    return {member: value for member, value in members.items() if value}
