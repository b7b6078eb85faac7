"""Groups as JSON bodies: one that is described, and a list of them. Read by the SDK and by the command line."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.core.fields import Fields
from headrace.core.groups.identity import GroupEpoch, GroupName, GroupState, GroupType, MemberId
from headrace.core.groups.sessions import Silence
from headrace.core.groups.settings import Assignor
from headrace.core.groups.status import MemberReport, Report
from headrace.core.groups.wire import ANSWER, listed_object, parse_listed
from headrace.core.types import BrokerId


class GroupSummary(NamedTuple):
    """A line of a list of groups."""

    group: str
    state: GroupState
    members: int
    coordinator: BrokerId
    type: GroupType = GroupType.CONSUMER


def group_object(report: Report) -> dict[str, Any]:
    """The description of a group."""
    return {
        "group": report.group.name,
        "type": report.type.value,
        "state": report.state.value,
        "groupEpoch": report.group_epoch,
        "assignmentEpoch": report.assignment_epoch,
        "assignor": report.assignor.value,
        "paused": report.paused,
        "lastReset": report.last_reset,
        "coordinator": report.coordinator,
        "members": [
            {
                "memberId": member.member,
                "instanceId": member.instance,
                "clientAddress": member.client_address,
                "memberEpoch": member.epoch,
                "topics": [*member.topics],
                "topicPattern": member.pattern,
                "assignment": listed_object(member.assignment),
                "owned": listed_object(member.owned),
                **_silence_object(member.silence),
            }
            for member in report.members
        ],
    }


def parse_group(body: object, namespace: str) -> Report:
    """A description has no lags."""
    fields = Fields(body, ANSWER)
    return Report(
        group=GroupName(namespace, fields.text("group")),
        state=fields.one_of("state", GroupState),
        group_epoch=GroupEpoch(fields.whole("groupEpoch")),
        assignment_epoch=GroupEpoch(fields.whole("assignmentEpoch")),
        assignor=fields.one_of("assignor", Assignor),
        paused=fields.truth("paused"),
        coordinator=BrokerId(fields.whole("coordinator")),
        members=tuple(map(_parse_member, fields.objects("members"))),
        last_reset=fields.text("lastReset", ""),
        type=fields.one_of("type", GroupType),
    )


def groups_object(summaries: Iterable[GroupSummary], unreachable: Iterable[BrokerId] = ()) -> dict[str, Any]:
    """`unreachable`: brokers that may coordinate others, and did not answer."""
    return {
        "groups": [
            {**each._asdict(), "state": each.state.value, "type": each.type.value} for each in sorted(summaries)
        ],
        "unreachable": sorted(unreachable),
    }


def parse_groups(body: object) -> tuple[tuple[GroupSummary, ...], tuple[BrokerId, ...]]:
    """The groups of a namespace, and who did not answer."""
    fields = Fields(body, ANSWER)
    summaries = tuple(
        GroupSummary(
            each.text("group"),
            each.one_of("state", GroupState),
            each.whole("members"),
            BrokerId(each.whole("coordinator")),
            each.one_of("type", GroupType),
        )
        for each in fields.objects("groups")
    )
    return summaries, tuple(map(BrokerId, fields.wholes("unreachable", [])))


def _silence_object(silence: Silence | None) -> dict[str, int]:
    return {} if silence is None else {"silentMs": silence.silent_ms, "expiresInMs": silence.expires_in_ms}


def _parse_member(fields: Fields) -> MemberReport:
    return MemberReport(
        member=MemberId(fields.text("memberId")),
        instance=fields.text("instanceId", ""),
        client_address=fields.text("clientAddress", ""),
        epoch=GroupEpoch(fields.whole("memberEpoch")),
        topics=tuple(fields.texts("topics")),
        pattern=fields.text("topicPattern", ""),
        assignment=parse_listed(fields, "assignment"),
        owned=parse_listed(fields, "owned"),
        silence=Silence(fields.whole("silentMs"), fields.whole("expiresInMs")) if "silentMs" in fields else None,
    )
