"""Who answers for a Service or a Pod on one machine."""

from random import Random
from typing import Any

import pytest

from headrace.dev.api.objects import Object
from headrace.dev.api.proxy import Endpoint, endpoint_of_pod, endpoint_of_service, parse_asked
from headrace.dev.api.status import StatusError

_SERVICE: Object = {
    "spec": {
        "selector": {"app": "broker"},
        "ports": [{"name": "http", "port": 9701, "targetPort": "http"}, {"name": "raw", "port": 7, "targetPort": 7007}],
    }
}


def _pod(port: int = 9701, *, ip: str = "127.0.0.1", ready: bool = True, **metadata: Any) -> Object:
    containers = [{"name": "broker"}, {"name": "side", "ports": [{"name": "http", "containerPort": port}]}]
    conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": "p", "labels": {"app": "broker", "more": "x"}, **metadata},
        "spec": {"containers": containers},
        "status": {"podIP": ip, "conditions": conditions},
    }


def _all(text: str, *pods: Object) -> set[Endpoint]:
    """Every one that is ever chosen."""
    return {endpoint_of_service(parse_asked(text, "service"), _SERVICE, pods, Random(seed)) for seed in range(20)}


def test_should_look_up_a_port_by_name_in_every_pod() -> None:
    expected = {Endpoint("http", "127.0.0.1", 9701), Endpoint("http", "127.0.0.1", 9702)}
    assert _all("b:http", _pod(9701), _pod(9702)) == expected
    assert _all("b:9701", _pod(9701), _pod(9702)) == expected
    assert _all("https:b:raw", _pod()) == {Endpoint("https", "127.0.0.1", 7007)}


def test_should_go_to_pods_that_are_ready_and_stay_and_are_on_this_machine() -> None:
    others = [
        _pod(1, ready=False),
        _pod(2, deletionTimestamp="2026-11-21T09:00:00Z"),
        _pod(3, ip="192.0.2.1"),
        _pod(4, ip=""),
        _pod(5, labels={"app": "other"}),
    ]
    assert _all("b:http", *others, _pod(6, ip="::1")) == {Endpoint("http", "::1", 6)}
    with pytest.raises(StatusError, match='no endpoints available for service "b:http"'):
        _all("b:http", *others)


def test_should_know_no_port_that_no_container_has() -> None:
    nameless = _pod()
    nameless["spec"]["containers"].pop()
    with pytest.raises(StatusError, match='no endpoints available for service "b:http"'):
        _all("b:http", nameless)


def test_should_take_a_pods_first_port_its_number_or_its_name() -> None:
    def chosen(text: str, pod: Object) -> Endpoint:
        return endpoint_of_pod(parse_asked(text, "pod"), pod)

    assert chosen("p", _pod(9702)) == chosen("p:http", _pod(9702)) == Endpoint("http", "127.0.0.1", 9702)
    assert chosen("https:p:1234", _pod()) == Endpoint("https", "127.0.0.1", 1234)
    with pytest.raises(StatusError, match='pod "p" has no port "metrics"'):
        chosen("p:metrics", _pod())
    with pytest.raises(StatusError, match="address not allowed"):
        chosen("p", _pod(ip="10.0.0.1"))
