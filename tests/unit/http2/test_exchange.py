"""The client's side against a server's engine in memory: who failed, whether it may be sent again, and credit."""

from collections.abc import Iterator, Sequence

import pytest

from headrace.core import limits
from headrace.core.errors import BrokenSessionError, BrokerUnreachableError
from headrace.http2.engine import Engine, Role
from headrace.http2.events import (
    DataReceived,
    ErrorCode,
    Event,
    RemoteProtocolError,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from headrace.http2.exchange import Decode, Exchange, Exchanges, Keeps
from headrace.http2.frames import Buffer
from headrace.http2.origin import parse_request
from tests.support.http2 import FRAME, OK


class Conversation:
    def __init__(self) -> None:
        self.exchanges = Exchanges("broker:9701")
        self.server = Engine(Role.SERVER)
        self.events: list[Event] = []
        self.run()

    def run(self) -> None:
        while True:
            up, down = (
                b"".join(self.exchanges.data_to_send(limits.H2_WRITE_BYTES)),
                b"".join(self.server.data_to_send()),
            )
            if not up and not down:
                return
            self.events += self.server.receive_data(up)
            self.exchanges.receive_data(down)

    def start(self, body: Sequence[Buffer] = (), decode: Decode | None = None, keeps: Keeps | None = None) -> Exchange:
        request = parse_request("POST", "http://broker:9701/records", {}, sum(map(len, body)))
        exchange = Exchange(request, body, lambda: None)
        exchange.decode, exchange.keeps = decode, keeps
        self.exchanges.start(exchange)
        self.run()
        return exchange

    def answer(self, exchange: Exchange, *parts: bytes, ended: bool = True) -> None:
        self.server.send_head(exchange.stream_id, [*OK, (b"x-a", b"1"), (b"x-a", b"2")], ended=not parts and ended)
        for index, part in enumerate(parts):
            self.server.send_body(exchange.stream_id, part, ended=ended and index == len(parts) - 1)
            self.run()
        self.run()


def unprocessed(exchange: Exchange) -> object:
    assert isinstance(exchange.error, BrokerUnreachableError)
    return exchange.error.details["unprocessed"]


def test_should_give_head_and_body_when_the_server_answers() -> None:
    talk = Conversation()
    exchange = talk.start([b"records"])
    talk.answer(exchange, b"o", b"k")

    assert (exchange.status, exchange.headers, exchange.ended) == (200, {"x-a": "1, 2"}, True)
    assert talk.exchanges.take(exchange) == [b"o", b"k"]
    assert talk.exchanges.is_idle


def numbers(data: bytes | memoryview) -> Iterator[int]:
    for digit in bytes(data).decode():
        if not digit.isdigit():
            raise BrokenSessionError(f"{digit} is no digit")
        yield int(digit)


def test_should_give_what_is_decoded_in_place_of_bytes() -> None:
    talk = Conversation()
    exchange = talk.start(decode=numbers)
    talk.answer(exchange, b"12", b"3")
    assert (talk.exchanges.take(exchange), exchange.ended) == ([1, 2, 3], True)


def test_should_give_an_error_response_as_bytes_when_others_are_decoded() -> None:
    talk = Conversation()
    exchange = talk.start(decode=numbers)
    talk.server.send_head(exchange.stream_id, [(b":status", b"404")], ended=False)
    talk.server.send_body(exchange.stream_id, b"why", ended=True)
    talk.run()
    assert (exchange.status, talk.exchanges.take(exchange)) == (404, [b"why"])


def test_should_fail_one_request_when_its_response_cannot_be_decoded() -> None:
    talk = Conversation()
    broken, other = talk.start(decode=numbers), talk.start(decode=numbers)
    talk.answer(broken, b"4x5", b"6", ended=False)
    talk.answer(other, b"7")
    assert "sent what cannot be understood: x is no digit" in str(broken.error)
    assert unprocessed(broken) is False
    assert [talk.exchanges.take(each) for each in (broken, other)] == [[4], [7]]
    assert StreamReset(broken.stream_id, ErrorCode.CANCEL) in talk.events


def test_should_credit_what_is_decoded_at_once() -> None:
    talk, sizes = Conversation(), list[int]()

    def swallow(data: bytes | memoryview) -> tuple[()]:
        sizes.append(len(data))
        return ()

    exchange = talk.start(decode=swallow)
    talk.answer(exchange, *[FRAME] * (2 * limits.H2_STREAM_WINDOW_BYTES // len(FRAME)))
    assert (sum(sizes), exchange.ended) == (2 * limits.H2_STREAM_WINDOW_BYTES, True)
    assert talk.exchanges.take(exchange) == []


def test_should_say_what_of_the_bytes_is_still_used() -> None:
    talk, used = Conversation(), [1, 0, 2]
    first, second, over = (
        talk.start(decode=lambda data: (), keeps=keeps) for keeps in (used.pop, lambda: 7, lambda: 8)
    )
    talk.answer(over)
    assert [talk.exchanges.kept for _ in range(3)] == [
        {(first.stream_id, 2), (second.stream_id, 7)},
        {(second.stream_id, 7)},
        {(first.stream_id, 1), (second.stream_id, 7)},
    ]
    talk.exchanges.fail("is lost")
    assert talk.exchanges.kept == set()


def test_should_fail_only_the_unprocessed_when_the_server_goes_away() -> None:
    talk = Conversation()
    old = talk.start()
    talk.server.go_away()
    new = Exchange(old.request, (), lambda: None)
    talk.exchanges.start(new)
    talk.run()

    assert unprocessed(new) is True
    assert "broker broker:9701 is shutting down (POST /records)" in str(new.error)
    assert not talk.exchanges.is_usable
    assert not old.is_over
    talk.answer(old)
    assert old.ended


def test_should_fail_at_once_when_the_connection_is_not_usable_any_more() -> None:
    talk = Conversation()
    talk.exchanges.fail("closed the connection")
    assert unprocessed(talk.start()) is True


def test_should_say_that_it_may_have_been_processed_when_the_connection_is_lost() -> None:
    talk = Conversation()
    exchange = talk.start()
    talk.exchanges.fail("closed the connection")
    assert unprocessed(exchange) is False


@pytest.mark.parametrize(("code", "expected"), [(ErrorCode.REFUSED_STREAM, True), (ErrorCode.INTERNAL_ERROR, False)])
def test_should_tell_a_refusal_from_a_failure_when_the_stream_is_reset(code: ErrorCode, expected: bool) -> None:
    talk = Conversation()
    exchange, other = talk.start(), talk.start()
    talk.server.reset(exchange.stream_id, code)
    talk.run()

    assert unprocessed(exchange) is expected
    talk.answer(other)
    assert other.ended, "the others go on"


def test_should_reset_only_its_stream_when_cancelled() -> None:
    talk = Conversation()
    exchange, other = talk.start([FRAME] * 12), talk.start()
    error = talk.exchanges.cancel(exchange, "did enough")
    assert str(talk.exchanges.cancel(exchange, "did it twice")).startswith("broker broker:9701 did it twice (")
    talk.run()

    assert StreamReset(exchange.stream_id, ErrorCode.CANCEL) in talk.events
    assert exchange.error is error
    assert str(error) == f"broker broker:9701 did enough ({exchange.request.name})"
    assert unprocessed(exchange) is False
    talk.answer(other)
    assert other.ended


def test_should_wait_its_turn_when_the_server_takes_no_more_streams() -> None:
    talk = Conversation()
    exchanges = [talk.start() for _ in range(limits.H2_MAX_CONCURRENT_STREAMS + 2)]
    late, cancelled = exchanges[-2:]
    assert late.stream_id == cancelled.stream_id == 0

    talk.exchanges.cancel(cancelled, "was not sent at all")
    talk.answer(exchanges[0])
    assert late.stream_id
    assert cancelled.stream_id == 0


def test_should_stop_its_upload_when_the_answer_came_first() -> None:
    talk = Conversation()
    exchange = talk.start([FRAME] * 20)
    talk.answer(exchange, b"too large")

    assert exchange.ended
    assert StreamReset(exchange.stream_id, ErrorCode.NO_ERROR) in talk.events
    received = sum(len(event.data) for event in talk.events if isinstance(event, DataReceived))
    assert received == limits.H2_REQUEST_WINDOW_BYTES


def test_should_hold_up_nobody_when_responses_are_not_read() -> None:
    talk = Conversation()
    unread = [talk.start() for _ in range(12)]
    for exchange in unread:
        talk.answer(exchange, *[FRAME] * 8, ended=False)
        assert talk.server.sendable(exchange.stream_id) == 0, "one stream window is the bound"
    other = talk.start()
    talk.answer(other, b"still here")
    assert other.ended

    assert len(talk.exchanges.take(unread[0])) == 8
    talk.run()
    assert talk.server.sendable(unread[0].stream_id) > 0


def test_should_fail_every_exchange_when_the_server_does_not_speak_http2() -> None:
    exchanges = Exchanges("broker:80")
    exchange = Exchange(parse_request("GET", "http://broker:80/", {}, 0), (), lambda: None)
    exchanges.start(exchange)
    with pytest.raises(RemoteProtocolError):
        exchanges.receive_data(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    assert "does not speak HTTP/2" in str(exchange.error)
    assert not exchanges.is_usable


def test_should_announce_the_length_when_there_is_a_body() -> None:
    talk = Conversation()
    talk.start([b"123", b"45"])
    request = next(event for event in talk.events if isinstance(event, RequestReceived))
    assert (b"content-length", b"5") in request.fields


def test_should_keep_what_an_open_ended_body_was_given_before_its_turn() -> None:
    talk = Conversation()
    request = parse_request("POST", "http://broker:9701/sessions", {}, None)
    exchange = Exchange(request, (), lambda: None)
    exchange.body_ended = False
    talk.exchanges.send(exchange, [b"one"], ended=False)
    talk.exchanges.start(exchange)
    talk.run()
    talk.exchanges.send(exchange, [b"two"], ended=True)
    talk.run()

    assert [event.data for event in talk.events if isinstance(event, DataReceived)] == [b"one", b"two"]
    assert StreamEnded(exchange.stream_id) in talk.events
    talk.answer(exchange)
    talk.exchanges.send(exchange, [b"dropped"], ended=True)
    assert exchange.ended
