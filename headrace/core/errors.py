"""The errors that users and peers see, and the RFC 9457 problem documents in which they cross HTTP.

An error names what happened, with the value and the rule, and what to do about it. It has a stable `code` and the HTTP
status that it travels under; `to_problem` and `from_problem` turn it into a document and back, so that a client raises
the very class that the broker raised. `LocalError`: the caller did something wrong before anything was sent.
`RemoteError`: the other side's answer. `retriable` is True where the same request may succeed later. `details` are
extra members of the document: JSON values.

    {"type": "https://headrace.io/problems/NotLeader", "title": "Not leader", "status": 421, "code": "NotLeader",
     "detail": "broker 1 does not lead flights/3; broker 2 does", "retriable": true, "leader": 2}
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

PROBLEM_CONTENT_TYPE = "application/problem+json"
_OWN_MEMBERS = frozenset({"type", "title", "status", "code", "detail", "retriable"})
_AWAY = frozenset({429, 500, 502, 503, 504})
"""The statuses that a proxy answers while no server is behind it, or none has time."""


class HeadraceError(Exception):
    """The base of every expected failure."""

    code: ClassVar[str] = "Error"
    status: ClassVar[int] = 500
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, /, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class LocalError(HeadraceError):
    """The caller made a mistake, found before anything was sent."""

    code = "LocalError"
    status = 400


class RemoteError(HeadraceError):
    """The other side answered with an error."""

    code = "RemoteError"


class InvalidRequestError(RemoteError):
    """A field of the request breaks a rule; `field`, `value` and the rule are in the message (HTTP 400)."""

    code = "InvalidRequest"
    status = 400


class CorruptBatchError(RemoteError):
    """These bytes are not a record batch: length, checksum, counts or body do not agree (HTTP 400)."""

    code = "CorruptBatch"
    status = 400


class UnreadableBatchError(CorruptBatchError):
    """A log has a batch as it was written, and its body holds no records that can be decoded (HTTP 422).

    `baseOffset` and `lastOffset` are its offsets; reading goes on at `nextOffset`.
    """

    code = "UnreadableBatch"
    status = 422


class InvalidTimestampError(RemoteError):
    """The time of a record is out of the bounds that its topic sets, or that all topics have (HTTP 400); `batch`,
    `record`, `timestamp`, `limit` and the `field` of the Topic that sets it. Nothing is written."""

    code = "InvalidTimestamp"
    status = 400


class UnknownTopicError(RemoteError):
    """There is no such topic in this namespace (HTTP 404)."""

    code = "UnknownTopic"
    status = 404


class UnknownPartitionError(RemoteError):
    """The topic exists, the partition does not (HTTP 404); `partitions` is the number that there are."""

    code = "UnknownPartition"
    status = 404


class UnknownBrokerError(RemoteError):
    """No broker of this number has ever been seen (HTTP 404)."""

    code = "UnknownBroker"
    status = 404


class StaleTopicError(RemoteError):
    """The topic was deleted and created again: the uid that the client knows is gone (HTTP 412)."""

    code = "StaleTopic"
    status = 412


class FencedEpochError(RemoteError):
    """The leader epoch that the client knows is not this leader's (HTTP 412); refresh the metadata."""

    code = "FencedEpoch"
    status = 412
    retriable = True


class OutOfOrderSequenceError(RemoteError):
    """A batch of an idempotent producer does not follow its last one, nor repeat one that is remembered (HTTP 409);
    `expectedSequence` and `sequence`. Nothing is written."""

    code = "OutOfOrderSequence"
    status = 409


class FencedProducerError(RemoteError):
    """A batch has an older epoch than its producer has written in (HTTP 409); `producerEpoch`. Nothing is written."""

    code = "FencedProducer"
    status = 409


class BatchTooLargeError(RemoteError):
    """A batch, line or body is over its limit (HTTP 413); `limit` in bytes."""

    code = "BatchTooLarge"
    status = 413


class UnsupportedEncodingError(RemoteError):
    """The request's body has a Content-Encoding that is not taken (HTTP 415): send gzip, or plain."""

    code = "UnsupportedEncoding"
    status = 415


class BrokenSessionError(RemoteError):
    """The other side of a session sent what is no frame, or a frame out of place (HTTP 400); the session is over."""

    code = "BrokenSession"
    status = 400


class OffsetOutOfRangeError(RemoteError):
    """The offset lies outside [logStartOffset, highWatermark] (HTTP 416)."""

    code = "OffsetOutOfRange"
    status = 416


class NotLeaderError(RemoteError):
    """This broker does not lead the partition (HTTP 421); `leader` and `url` where they are known."""

    code = "NotLeader"
    status = 421
    retriable = True


class ThrottledError(RemoteError):
    """There is too much in flight; wait as long as Retry-After says (HTTP 429)."""

    code = "Throttled"
    status = 429
    retriable = True


class PartitionOfflineError(RemoteError):
    """The partition has no leader just now (HTTP 503)."""

    code = "PartitionOffline"
    status = 503
    retriable = True


class NotEnoughReplicasError(RemoteError):
    """Fewer replicas are in sync than `minInsyncReplicas`, and `acks=all` was asked for (HTTP 503). Nothing was
    written."""

    code = "NotEnoughReplicas"
    status = 503
    retriable = True


class NotReadyError(RemoteError):
    """The broker is starting, draining, or does not know its partitions yet; or it does not know what is the latest, or
    whether it still leads (HTTP 503)."""

    code = "NotReady"
    status = 503
    retriable = True


class SlowClientError(RemoteError):
    """The request's body came too slowly, or not at all (HTTP 408)."""

    code = "SlowClient"
    status = 408
    retriable = True


class RequestTimedOutError(RemoteError):
    """The acknowledgement did not come in time: the records may or may not be written (HTTP 504)."""

    code = "RequestTimedOut"
    status = 504
    retriable = True


class DiskFullError(RemoteError):
    """The broker's disk is full (HTTP 507)."""

    code = "DiskFull"
    status = 507
    retriable = True


class CorruptLogError(RemoteError):
    """Bytes at rest are damaged: the message names file and position (HTTP 500); other offsets can still be read."""

    code = "CorruptLog"
    status = 500


class DivergedLogError(RemoteError):
    """A replica's log does not go on where its leader's does (HTTP 409): reconcile with the leader again."""

    code = "DivergedLog"
    status = 409


class StorageFailedError(RemoteError):
    """The broker's disk failed; it gives up its partitions (HTTP 503)."""

    code = "StorageFailed"
    status = 503
    retriable = True


class UnknownMemberError(RemoteError):
    """The group has no such member: its session has expired, it left, or it was removed (HTTP 404). A member that gets
    this gives up all its partitions, and joins again."""

    code = "UnknownMember"
    status = 404


class FencedMemberError(RemoteError):
    """A member's epochs or partitions are not those that its coordinator knows, or a committer does not own the
    partition (HTTP 412). A member that gets this to a heartbeat gives up all its partitions, and joins again."""

    code = "FencedMember"
    status = 412


class FencedInstanceError(RemoteError):
    """Another process has taken over this instance id (HTTP 409): give up all partitions; two run where one should."""

    code = "FencedInstance"
    status = 409


class UnreleasedInstanceError(RemoteError):
    """Another process holds this instance id and is alive (HTTP 409): try again once it has left, or fallen silent."""

    code = "UnreleasedInstance"
    status = 409
    retriable = True


class GroupNotEmptyError(RemoteError):
    """The request is possible only for a group without members: deletion, a reset, commits from outside (HTTP 409)."""

    code = "GroupNotEmpty"
    status = 409


class GroupFullError(RemoteError):
    """The group, or the coordinator, has as many members, offsets or groups as it may (HTTP 409); `limit`."""

    code = "GroupFull"
    status = 409


class WrongGroupTypeError(RemoteError):
    """The ConsumerGroup of this name shows the progress of a program that shares partitions out itself (HTTP 409): no
    member can join it, and its offsets cannot be committed or reset."""

    code = "WrongGroupType"
    status = 409


class NotCoordinatorError(RemoteError):
    """This broker does not coordinate the group or writer (HTTP 421): ask for its coordinator again."""

    code = "NotCoordinator"
    status = 421
    retriable = True


class CoordinatorLoadingError(RemoteError):
    """This broker has just become the group's coordinator and is still reading its log (HTTP 503)."""

    code = "CoordinatorLoading"
    status = 503
    retriable = True


class UnknownGroupError(RemoteError):
    """Nothing is known of such a group (HTTP 404): no member has joined it, and no offsets were committed or reset."""

    code = "UnknownGroup"
    status = 404


class StagesGoneError(RemoteError):
    """Stages that are to be committed were deleted, because they were too old (HTTP 409): nothing is committed, write
    them again."""

    code = "StagesGone"
    status = 409


class StaleBatchError(RemoteError):
    """A batch that is to be committed is not the writer's next one, nor a repetition of its last one (HTTP 409):
    nothing of it is written. `lastBatch` is the number of the last one."""

    code = "StaleBatch"
    status = 409


class InternalTopicError(RemoteError):
    """Headrace keeps its own records there (HTTP 403): brokers alone read, write and delete them, but for the batches
    that writers stage."""

    code = "InternalTopic"
    status = 403


class BrokersOnlyError(RemoteError):
    """The request is for brokers alone, which show the key of their Lease (HTTP 403)."""

    code = "BrokersOnly"
    status = 403


class ForeignPageError(RemoteError):
    """A page of another site made a browser send this (HTTP 403): only programs, and pages of the same origin, may."""

    code = "ForeignPage"
    status = 403


class BrokerUnreachableError(HeadraceError):
    """No broker answered: connection refused, reset or timed out. Raised by clients."""

    code = "BrokerUnreachable"
    status = 503
    retriable = True


class UntrustedBrokerError(BrokerUnreachableError):
    """The broker's certificate is none that this client may trust. Trying again does not help; a remedy is named."""

    code = "UntrustedBroker"
    retriable = False


class PollIntervalExceededError(HeadraceError):
    """A consumer's user kept its records for longer than `max_poll_interval_ms`: the consumer has left its group, so
    that others go on. Raised by clients; iterating again joins again."""

    code = "PollIntervalExceeded"


class StalledError(HeadraceError):
    """A client has stopped working: its sending or reading part has died, or nothing moved for longer than time limits
    allow. Raised by clients, instead of waiting without end; make a new one."""

    code = "Stalled"


def to_problem(error: HeadraceError) -> dict[str, Any]:
    """Return the problem document of `error`; its `details` become members of it."""
    title = re.sub(r"(?<!^)(?=[A-Z])", " ", error.code).capitalize()
    return {
        "type": f"https://headrace.io/problems/{error.code}",
        "title": title,
        "status": error.status,
        "code": error.code,
        "detail": error.message,
        "retriable": error.retriable,
        **error.details,
    }


def from_problem(document: Mapping[str, Any], status: int) -> HeadraceError:
    """Return the error that `document` describes; a `RemoteError` that keeps status and code where the code is not
    known."""
    if document.get("kind") == "Status":
        return _from_kubernetes(document, status)
    detail = str(document.get("detail") or document.get("title") or f"HTTP {status}")
    details = {name: value for name, value in document.items() if name not in _OWN_MEMBERS and name.isidentifier()}
    known = _BY_CODE.get(str(document.get("code")))
    if known is None:
        return RemoteError(f"HTTP {status}: {detail}", **details)
    return known(detail, **details)


def _from_kubernetes(answer: Mapping[str, Any], status: int) -> HeadraceError:
    """Return the error of the API server's own answer, where brokers are reached through its proxy."""
    said = f"the Kubernetes API server, which stands between, says HTTP {status}: {answer.get('message') or 'no more'}"
    return BrokerUnreachableError(said, unprocessed=False) if status in _AWAY else RemoteError(said)


def _subclasses(root: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    for subclass in root.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


_BY_CODE = {error.code: error for error in _subclasses(HeadraceError)}
