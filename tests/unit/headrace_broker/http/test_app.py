"""What Prometheus asks for is as it was at one moment, and is written down beside the event loop."""

import threading
from typing import cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from headrace_broker.http import app
from headrace_broker.http.app import HealthRoutes, Readiness
from headrace_broker.metrics import Metrics


async def test_should_write_metrics_down_in_a_thread_as_they_were_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    gauge = Gauge("headrace_test", "A test.", registry=metrics.registry)
    gauge.set(1)
    threads: list[threading.Thread] = []

    def written(registry: CollectorRegistry) -> bytes:
        threads.append(threading.current_thread())
        gauge.set(2)
        return generate_latest(registry)

    monkeypatch.setattr(app, "generate_latest", written)
    answer = await HealthRoutes(Readiness(), metrics).metrics(make_mocked_request("GET", "/metrics"))
    assert b"\nheadrace_test 1.0\n" in cast("bytes", cast("web.Response", answer).body)
    assert threads != [threading.main_thread()]
