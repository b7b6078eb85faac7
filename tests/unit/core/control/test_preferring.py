"""Whom a Topic's annotation wants to lead: what can be done is done, what cannot is told with the remedy."""

from dataclasses import replace
from typing import Any

import pytest

from headrace.core.control.conditions import Condition, by_type, notices
from headrace.core.control.elections import Preference, preference_of, preferred_condition
from headrace.core.resources.metadata import ConditionType
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import PREFERRED_ANNOTATION, Topic
from headrace.core.types import BrokerId, PartitionId
from tests.support.control import topic
from tests.support.partition_sets import partition_state


def at(number: int, *replicas: int) -> PartitionState:
    return partition_state(number, replicas=tuple(map(BrokerId, replicas)))


STATES = [at(0, 0, 1), at(1, 1, 2)]


def annotated(text: str | None) -> Topic:
    annotations = {} if text is None else {PREFERRED_ANNOTATION: text}
    return topic(partitions=2, replicas=2, metadata={"annotations": annotations})


def told(text: str | None, *before: dict[str, Any]) -> Condition | None:
    conditions = preferred_condition(replace(annotated(text), status={"conditions": [*before]}), STATES)
    return conditions[0] if conditions else None


def test_should_want_nothing_without_the_annotation() -> None:
    assert preference_of(annotated(None), STATES) == Preference()
    assert told(None) is None
    before = {"type": "PreferredLeaders", "status": "True"}
    assert told(None, {"type": "Ready"}, before) == Condition.off(ConditionType.PREFERRED_LEADERS, "NotSet")


def test_should_want_what_is_written() -> None:
    text = '{"0": 1, "1": 1}'
    assert preference_of(annotated(text), STATES).wanted == {PartitionId(0): BrokerId(1), PartitionId(1): BrokerId(1)}
    assert told(text) == Condition.on(ConditionType.PREFERRED_LEADERS, "Accepted")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0: 1", "'0: 1' is no JSON object"),
        ("[1]", "'[1]' is no JSON object"),
        ('{"2": 1}', "there is no partition '2': the topic has 2, from 0"),
        ('{"0": "1"}', "partition 0: '1' is no broker's id"),
        ('{"0": true}', "partition 0: 'True' is no broker's id"),
        ('{"0": 2}', "partition 0: broker 2 has no replica of it: name one of 0, 1"),
        ('{"5": 1, "6": 1, "7": 1, "8": 1}', "; and 1 more"),
    ],
)
def test_should_say_what_cannot_be_done(text: str, message: str) -> None:
    condition = told(text)
    assert condition is not None
    assert (condition.true, condition.reason) == (False, "Refused")
    assert message in condition.message
    assert PREFERRED_ANNOTATION in condition.message


def test_should_do_what_can_be_done_beside_what_cannot() -> None:
    found = preference_of(annotated('{"0": 7, "1": 2}'), STATES)
    assert found.wanted == {PartitionId(1): BrokerId(2)}
    assert len(found.problems) == 1


def test_should_wait_for_partitions_that_have_no_place_yet() -> None:
    begun = preference_of(annotated('{"0": 1, "1": 1}'), STATES[:1])
    assert begun == Preference({PartitionId(0): BrokerId(1)})
    assert preference_of(annotated('{"0": 1}'), []) == Preference()
    assert preference_of(annotated('{"2": 1}'), []).problems


def test_should_tell_people_once() -> None:
    condition = told('{"0": 7}')
    assert condition is not None
    (notice,) = notices([condition], {})
    assert (notice.reason, notice.warning) == ("PreferredLeadersRefused", True)
    before = by_type([{"type": "PreferredLeaders", "status": "False", "message": condition.message}])
    assert notices([condition], before) == ()
