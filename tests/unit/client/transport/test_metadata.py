"""Metadata becomes a layout; a URL that cannot be reached is replaced by one that can."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.transport.calls import Directory
from headrace.client.transport.discovery import Servers
from headrace.client.transport.metadata import (
    METADATA_AGE_MS_MAX,
    UNREACHABLE_URL_MS,
    PartitionLayout,
    Routes,
    TopicLayout,
)
from headrace.core.errors import RemoteError, UntrustedBrokerError

BOOTSTRAP, LEADER, OTHER = "http://boot:9701", "http://leader:9701", "http://other:9701"


def document(**changes: Any) -> dict[str, Any]:
    partitions = [
        {"partition": 1, "leader": None, "leaderEpoch": 0, "isr": [], "replicas": [0], "offsets": None},
        {"partition": 0, "leader": {"id": 2, "url": LEADER}, "leaderEpoch": 4, "isr": [2], "replicas": [2]},
    ]
    whole = {"namespace": "default", "name": "flights", "uid": "u1", "maxMessageBytes": 1000, "partitions": partitions}
    return {**whole, **changes}


def test_should_order_partitions_when_metadata_is_parsed() -> None:
    layout = TopicLayout.parse(document(), read_at_ms=5)
    assert layout == TopicLayout("flights", "u1", 1000, (PartitionLayout(LEADER, 4), PartitionLayout(None, 0)), 5)
    assert not layout.is_old(4 + METADATA_AGE_MS_MAX)
    assert layout.is_old(5 + METADATA_AGE_MS_MAX)


@pytest.mark.parametrize("broken", [{"partitions": None}, {"uid": "u", "maxMessageBytes": "big"}])
def test_should_ask_whether_it_is_a_broker_when_the_answer_is_no_metadata(broken: dict[str, Any]) -> None:
    with pytest.raises(RemoteError, match="is it a Headrace broker"):
        TopicLayout.parse(document(**broken), read_at_ms=0)


def test_should_go_to_the_leader_when_nothing_failed() -> None:
    routes = Routes([BOOTSTRAP])
    assert routes.choose(LEADER, 0) == LEADER
    assert routes.choose(None, 0) == BOOTSTRAP


def test_should_fall_back_to_the_bootstrap_when_the_leader_cannot_be_reached() -> None:
    routes = Routes([BOOTSTRAP])
    routes.failed(LEADER, 1_000)
    assert routes.choose(LEADER, 1_001) == BOOTSTRAP
    assert routes.choose(LEADER, 1_000 + UNREACHABLE_URL_MS) == LEADER


def test_should_return_to_the_leader_when_it_answers_again() -> None:
    routes = Routes([BOOTSTRAP])
    routes.failed(LEADER, 1_000)
    routes.answered(LEADER)
    assert routes.choose(LEADER, 1_001) == LEADER


def test_should_ask_a_known_leader_when_every_bootstrap_server_is_gone() -> None:
    routes = Routes([BOOTSTRAP, OTHER])
    routes.learn(TopicLayout.parse(document(), 0))
    routes.failed(BOOTSTRAP, 10)
    routes.failed(OTHER, 20)
    assert routes.choose(None, 30) == LEADER


def test_should_try_a_leader_again_at_once_when_it_was_elected_since() -> None:
    routes, layout = Routes([BOOTSTRAP]), TopicLayout.parse(document(), 0)
    routes.learn(layout)
    routes.failed(LEADER, 10)
    routes.learn(layout)
    assert routes.choose(LEADER, 20) == BOOTSTRAP
    elected = tuple(replace(partition, leader_epoch=partition.leader_epoch + 1) for partition in layout.partitions)
    routes.learn(replace(layout, partitions=elected))
    assert routes.choose(LEADER, 20) == LEADER


def test_should_ask_others_first_when_a_broker_is_silent_but_send_there_what_only_it_can_answer() -> None:
    routes = Routes([BOOTSTRAP, OTHER])
    routes.silent(BOOTSTRAP, 1_000)
    assert routes.choose(None, 1_001) == OTHER
    assert routes.choose(BOOTSTRAP, 1_001) == BOOTSTRAP
    assert routes.choose(None, 1_000 + UNREACHABLE_URL_MS) == BOOTSTRAP
    routes.silent(BOOTSTRAP, 2_000)
    routes.answered(BOOTSTRAP)
    assert routes.choose(None, 2_001) == BOOTSTRAP


def test_should_never_try_leaders_when_a_proxy_leads_to_them() -> None:
    routes = Routes([BOOTSTRAP], reaches_leaders=False)
    routes.learn(TopicLayout.parse(document(), 0))
    routes.failed(BOOTSTRAP, 10)
    assert routes.choose(LEADER, 20) == BOOTSTRAP


def test_should_try_another_broker_and_give_up_after_the_last_when_none_is_trusted() -> None:
    directory = Directory(Servers((BOOTSTRAP, OTHER)))
    untrusted = UntrustedBrokerError("has a certificate that does not cover 'boot'", unprocessed=True)
    first = directory.unreachable(BOOTSTRAP, untrusted, 0)
    assert (first.retriable, first.message, first.details) == (True, untrusted.message, {"unprocessed": True})
    assert directory.unreachable(OTHER, untrusted, 1) is untrusted
    assert directory.routes.has_other(UNREACHABLE_URL_MS)


@given(st.lists(st.tuples(st.sampled_from([BOOTSTRAP, LEADER, OTHER]), st.integers(0, 9)), max_size=20))
def test_should_always_choose_some_url_whatever_failed(failures: list[tuple[str, int]]) -> None:
    routes = Routes([BOOTSTRAP, OTHER])
    last: dict[str, int] = {}
    for url, at_ms in failures:
        routes.failed(url, at_ms)
        last[url] = at_ms
    chosen = routes.choose(LEADER, 10)
    assert chosen in (BOOTSTRAP, LEADER, OTHER)
    if len(last) == 3:
        assert last[chosen] == min(last.values())
