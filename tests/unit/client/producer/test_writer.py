"""What a producer can refuse by itself, it refuses before any broker is asked."""

from typing import Any

import pytest

from headrace.client.producer.writer import Writer
from headrace.client.transport.calls import Directory
from headrace.client.transport.discovery import Servers
from headrace.core.errors import LocalError


class Unsent(Writer):
    """Without anything that carries records."""

    def _open(self, server: str | Servers | None, namespace: str | None, ca_file: str | None) -> Directory:
        return Directory(Servers(("http://a:1",)))


def test_should_refuse_a_name_that_no_topic_can_have_before_metadata_is_asked_for() -> None:
    writer = Unsent()
    assert writer._known_route("my-topic") is None
    with pytest.raises(LocalError, match=r"cannot name a topic, .*; try my-topic"):
        writer._known_route("my_topic")


@pytest.mark.parametrize(
    ("options", "is_idempotent"),
    [
        ({}, True),
        ({"acks": "all", "enable_idempotence": True}, True),
        ({"enable_idempotence": False}, False),
        ({"acks": 1}, False),
        ({"acks": "0", "enable_idempotence": False}, False),
    ],
)
def test_should_be_idempotent_by_default_where_it_waits_for_all(options: dict[str, Any], is_idempotent: bool) -> None:
    assert Unsent(**options)._options.is_idempotent is is_idempotent


def test_should_refuse_to_be_idempotent_when_it_does_not_wait_for_all() -> None:
    with pytest.raises(ValueError, match=r"enable_idempotence=True needs acks='all', acks is '1': .* leave one"):
        Unsent(acks=1, enable_idempotence=True)
