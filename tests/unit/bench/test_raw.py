"""The bare client begins when the broker leads the partition: what was started a moment ago may not lead yet."""

from unittest.mock import create_autospec

import pytest

from bench.raw import RawClient, wait_led
from headrace.http2.blocking_transport import BlockingTransport
from headrace.http2.exchange import Response

NOT_YET = Response(503, {}, b'{"code": "NotReady"}')


def test_should_ask_until_the_broker_leads() -> None:
    transport = create_autospec(BlockingTransport, instance=True)
    transport.request.side_effect = [NOT_YET, NOT_YET, Response(200, {}, b'{"offset": 7}')]
    assert wait_led(transport, "http://broker/partition") == 7


def test_should_ask_once_where_asking_again_helps_nothing() -> None:
    transport = create_autospec(BlockingTransport, instance=True)
    transport.request.side_effect = [Response(404, {}, b"no such topic")]
    with pytest.raises(RuntimeError, match="HTTP 404: b'no such topic'"):
        wait_led(transport, "http://broker/partition")


def test_should_fetch_what_was_written_since_it_began() -> None:
    transport = create_autospec(BlockingTransport, instance=True)
    answers = [Response(200, {"headrace-next-offset": str(end)}, b"xx") for end in (3, 7)]
    ends = [Response(200, {}, b'{"offset": %d}' % end) for end in (0, 7)]
    transport.request.side_effect = [*ends, *answers]
    client = RawClient(transport, "http://broker", "topic")
    assert [*client.answers()] == [2, 2]
