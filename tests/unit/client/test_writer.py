"""What a producer can refuse by itself, it refuses before any broker is asked."""

import pytest

from headrace.client.directory import Directory
from headrace.client.discovery import Servers
from headrace.client.writer import Writer
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
