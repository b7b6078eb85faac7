"""What `headrace group describe` makes of what it has heard, from both sides or from one."""

from dataclasses import replace
from typing import Any

from headrace.cli.group_brokers import Live
from headrace.cli.group_view import GroupDescription, compact
from headrace.client.record import TopicPartition
from headrace.core.groups.assignment import TopicPartitions
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.identity import Assignor, GroupEpoch, GroupName, GroupState, GroupType, MemberId
from headrace.core.groups.lag import Watermarks
from headrace.core.groups.requests import TopicOffset
from headrace.core.groups.status import GroupReport, MemberReport
from headrace.core.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec
from headrace.core.types import BrokerId, LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid

NAME = GroupName("default", "billing")
UID = TopicUid("uid-orders")


def share(*partitions: int) -> tuple[TopicPartitions, ...]:
    return (TopicPartitions("orders", UID, tuple(map(PartitionId, partitions))),)


def member(name: str, *owned: int, instance: str = "", assigned: tuple[int, ...] | None = None) -> MemberReport:
    return MemberReport(
        MemberId(name),
        instance,
        "10.1.2.3",
        GroupEpoch(7),
        ("orders",),
        "",
        share(*(owned if assigned is None else assigned)),
        share(*owned),
    )


def live(
    *members: MemberReport, offsets: dict[int, int] | None = None, ends: dict[int, int | None] | None = None
) -> Live:
    committed = {
        TopicPartition("orders", partition): TopicOffset(
            "orders",
            PartitionKey(UID, PartitionId(partition)),
            OffsetValue(Offset(offset), LeaderEpoch(1), "note", 1_795_258_800_500),
        )
        for partition, offset in (offsets or {}).items()
    }
    marks = {
        TopicPartition("orders", partition): None if end is None else Watermarks(Offset(2), Offset(end))
        for partition, end in (ends or {}).items()
    }
    state = GroupState.STABLE if members else GroupState.EMPTY
    epoch = GroupEpoch(7)
    report = GroupReport(
        NAME,
        state,
        epoch,
        epoch,
        Assignor.UNIFORM,
        paused=False,
        coordinator=BrokerId(1),
        members=members,
        last_reset="replay-1",
    )
    return Live(report, committed, marks)


def resource(**status: Any) -> ConsumerGroup:
    return ConsumerGroup.parse(
        {
            "metadata": {"name": "billing", "namespace": "default"},
            "spec": {
                "resetOffsets": {"id": "r", "to": "Offsets", "offsets": [{"topic": "a", "partition": 0, "offset": 1}]}
            },
            "status": status,
        }
    )


SEEN = resource(
    state="Stable",
    groupEpoch=6,
    assignmentEpoch=6,
    coordinator=2,
    members=[
        {
            "memberId": "m0",
            "clientAddress": "10.1.2.9",
            "memberEpoch": 6,
            "topics": ["orders"],
            "owned": [{"topic": "orders", "partitions": [1, 0]}],
        }
    ],
    topics=[{"topic": "orders", "uid": UID, "lag": 5}, {"topic": "teas", "uid": "t", "lag": 1}],
    conditions=[{"type": "Ready", "status": "True", "reason": "Stable", "message": "all is well"}],
    lastReset={"id": "replay-0", "time": "2026-11-21T11:00:00Z", "result": "Applied"},
)


def test_should_show_how_far_the_group_has_read_and_who_reads() -> None:
    members = (member("m1", 0, instance="billing-0"), member("m2", 1))
    view = GroupDescription(NAME, None, live(*members, offsets={0: 10, 2: 1}, ends={0: 12, 1: 4, 2: 9}))
    titles, rows = view.partition_table()
    assert titles == ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "MEMBER", "ADDRESS"]
    assert rows == [
        ["orders", 0, 10, 12, 2, "billing-0", "10.1.2.3"],
        ["orders", 1, "-", 4, 2, "m2", "10.1.2.3"],
        ["orders", 2, 1, 9, 7, "-", "-"],
    ], "what was deleted (below 2) is no lag"
    assert view.head() == "default/billing   Stable   2 members   lag 11   coordinator 1   epoch 7"
    assert view.who == "billing-0 (10.1.2.3), m2 (10.1.2.3)"
    assert view.topics == ["orders"]
    assert view.document()["partitions"][0] == {
        "topic": "orders",
        "partition": 0,
        "offset": 10,
        "metadata": "note",
        "committed": "2026-11-21T11:00:00.500Z",
        "logStart": 2,
        "logEnd": 12,
        "lag": 2,
        "memberId": "m1",
    }


def test_should_say_what_is_not_known() -> None:
    view = GroupDescription(NAME, None, live(member("m1", 0, 1), offsets={0: 3}, ends={0: 5, 1: None}), no_api="away")
    assert view.partition_table()[1] == [
        ["orders", 0, 3, 5, 2, "m1", "10.1.2.3"],
        ["orders", 1, "-", "unknown", "unknown", "m1", "10.1.2.3"],
    ]
    assert "lag unknown" in view.head()
    document = view.document()
    assert (document["lag"], document["partitions"][1]["logEnd"], document["partitions"][1]["lag"]) == (
        None,
        None,
        None,
    )
    assert (document["spec"], document["conditions"], document["missing"]) == (None, None, view.missing)
    assert view.missing == ["the Kubernetes API is away, settings and conditions are not known: away"]
    assert document["lastReset"] == {"id": "replay-1"}


def test_should_show_what_moves_between_members() -> None:
    view = GroupDescription(NAME, None, live(member("m1", 0, 1, 2, 5, assigned=(0, 1)), member("m2", assigned=(2, 5))))
    assert [row[-2:] for row in view.member_table()[1]] == [["orders:0-2,5", "orders:0-1"], ["-", "orders:2,5"]]
    assert compact(()) == "-"


def test_should_show_what_the_kubernetes_api_saw_last_while_brokers_are_away() -> None:
    view = GroupDescription(NAME, SEEN, None, no_brokers="refused")
    assert view.head() == "default/billing   Stable   1 member   lag 6   coordinator 2   epoch 6"
    assert view.partition_table()[1] == [
        ["orders", 0, "unknown", "unknown", "unknown", "m0", "10.1.2.9"],
        ["orders", 1, "unknown", "unknown", "unknown", "m0", "10.1.2.9"],
    ]
    assert view.topics == ["orders", "teas"]
    assert view.missing[0].endswith("offsets are not known: refused")
    assert [*view.condition_lines()] == ["Ready=True Stable: all is well"]
    spec = dict(line.split(": ", 1) for line in view.spec_lines())
    assert (spec["sessionTimeout"], spec["offsetsRetention"]) == ("45s", "7d")
    assert spec["resetOffsets"] == "id r, to Offsets, offsets a:0=1"
    document = view.document()
    assert document["lastReset"] == {"id": "replay-0", "time": "2026-11-21T11:00:00Z", "result": "Applied"}
    assert document["spec"]["sessionTimeout"] == "45s"


def test_should_prefer_what_the_coordinator_says_now() -> None:
    view = GroupDescription(NAME, SEEN, live())
    assert view.head() == "default/billing   Empty   0 members   lag 0   coordinator 1   epoch 7"
    assert view.members == ()


def test_should_say_whose_progress_it_is_when_a_query_reports_it() -> None:
    told = live(offsets={0: 10}, ends={0: 12})
    view = GroupDescription(NAME, None, replace(told, report=replace(told.report, type=GroupType.SPARK)))
    assert view.head() == "default/billing   Empty   progress of a Spark query   lag 2   coordinator 1   epoch 7"
    assert view.document()["type"] == "Spark"
    unasked = replace(SEEN, spec=ConsumerGroupSpec(type=GroupType.SPARK))
    assert "progress of a Spark query" in GroupDescription(NAME, unasked, None, no_brokers="away").head()


def test_should_know_nothing_of_a_group_that_nobody_has_spoken_of() -> None:
    view = GroupDescription(NAME, resource(), None)
    assert view.head() == "default/billing   Unknown   0 members   lag unknown   coordinator unknown   epoch 0"
    assert view.document()["lag"] is None
    assert view.rows() == []


def test_should_name_a_few_of_many_members() -> None:
    view = GroupDescription(NAME, None, live(*(member(f"m{number}") for number in range(7))))
    assert view.who.endswith("m4 (10.1.2.3) and 2 more")
