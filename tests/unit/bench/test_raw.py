"""The bare client begins when the broker leads the partition: what was started a moment ago may not lead yet."""

from unittest.mock import create_autospec

import pytest

from bench.raw import wait_led
from headrace.http2.blocking import BlockingTransport, Response

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
