"""Questions to brokers, step by step, by a face that answers at once."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.client.record import TopicPartition
from headrace.client.transport.calls import Call
from headrace.client.transport.errands import BrokerErrands, Course, Each, Errand, Exchange, Here, Listener, Session, T
from headrace.core.errors import BrokerUnreachableError, LocalError, PartitionOfflineError
from headrace.http2.exchange import Response

URL = "http://a:1"
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
LAYOUT = {
    "name": "flights",
    "uid": "uid-1",
    "maxMessageBytes": 1 << 20,
    "partitions": [{"partition": number, "leader": 0, "leaderEpoch": 1, "leaderUrl": URL} for number in range(2)],
}


@dataclass
class Said:
    """What a broker says to the next request."""

    document: dict[str, Any]
    status: int = 200


class Face(BrokerErrands):
    def __init__(self, *answers: Said | Exception, is_closed: bool = False) -> None:
        super().__init__(URL, None, timeout_ms=60_000, request_timeout_ms=1_000)
        self.answers, self.is_closed = list(answers), is_closed
        self.asked: list[str] = []
        self.pauses = 0

    def _open(self) -> None:
        pass

    def run(self, errand: Errand[T]) -> T:
        course = Course(errand)
        while course.step is not None:
            try:
                done = course.step.by(self)
            except Exception as error:
                course.failed(error)
            else:
                course.done(done)
        return course.result

    def new_lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def new_turns(self, limit: int) -> AbstractContextManager[None]:
        return nullcontext()

    def new_guard(self) -> AbstractContextManager[None]:
        return nullcontext()

    def exchange(self, url: str, call: Call) -> Response:
        self.asked.append(call.path)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Response(answer.status, {}, json.dumps(answer.document).encode())

    def pause(self, seconds: float) -> bool:
        self.pauses += 1
        return self.is_closed

    def alone(self, lock: AbstractContextManager[None], errand: Errand[T]) -> T:
        with lock:
            return self.run(errand)

    def each(self, errands: Sequence[Errand[Any]]) -> list[Any]:
        return [self.run(errand) for errand in errands]

    def connect(self, session: Session, listener: Listener) -> None:
        raise AssertionError("nothing here opens a stream")


def test_should_ask_for_a_layout_until_somebody_answers_and_know_it_then() -> None:
    face = Face(BrokerUnreachableError("gone"), Said(LAYOUT))
    assert face.run(face.layout("flights")).uid == "uid-1"
    assert face.pauses == 1
    assert face.run(face.layout("flights")).uid == "uid-1"
    assert len(face.asked) == 2


def test_should_stop_trying_when_the_client_is_closed() -> None:
    face = Face(BrokerUnreachableError("gone"), is_closed=True)
    with pytest.raises(LocalError, match="the metadata of flights: closed meanwhile"):
        face.run(face.layout("flights"))


def test_should_take_the_end_where_no_record_is_as_young() -> None:
    face = Face(Said(LAYOUT), Said({"offset": None}), Said({"offset": 7}), Said({"offset": 3}))
    assert face.run(face.offsets([P0, P1], 1_000)) == {P0: 7, P1: 3}


def test_should_say_why_where_one_attempt_has_failed_and_ask_for_the_layout_anew() -> None:
    offline = Said({"code": "PartitionOffline", "status": 503, "detail": "nobody leads it"}, 503)
    face = Face(Said(LAYOUT), Said({"offset": 7}), offline)
    found = face.run(face.offsets_once([P0, P1], "latest", 500))
    assert found[P0] == 7
    assert isinstance(found[P1], PartitionOfflineError)
    assert face.directory.newest("flights") is None


def test_should_know_what_comes_next_and_how_it_ends() -> None:
    def errand() -> Errand[str]:
        try:
            yield Here(lambda: None)
        except ValueError:
            return "failed"
        return "done"

    course = Course(errand())
    assert isinstance(course.step, Here)
    course.done(None)
    assert [course.step, course.result] == [None, "done"]
    course = Course(errand())
    course.failed(ValueError())
    assert [course.step, course.result] == [None, "failed"]


def test_should_raise_what_the_errand_raises() -> None:
    face = Face()
    course = Course(face.request_once(Call("GET", "/v1/cluster", 1_000)))
    assert isinstance(course.step, Exchange)
    with pytest.raises(BrokerUnreachableError):
        course.failed(BrokerUnreachableError("gone"))


def test_should_ask_for_several_offsets_in_one_step() -> None:
    face = Face()
    course = Course(face.offsets([P0, P1], "latest"))
    assert isinstance(course.step, Each)
    course.done([1, 2])
    assert course.result == {P0: 1, P1: 2}
