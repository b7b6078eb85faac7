"""`kubectl logs` over HTTP: from the log file of the process behind a Pod, as long as there is a Pod."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.dev_api.conftest import Embedded
from tests.support.api_objects import pod
from tests.support.api_server import Space
from tests.support.kubeconfig import ApiClient, connect, write_kubeconfig
from tests.support.patience import patient

_PATIENCE_S = patient(30)


@pytest.fixture
async def api(embedded: Embedded, tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with connect(write_kubeconfig(tmp_path / "kubeconfig", embedded.url)) as client:
        yield client


@pytest.fixture
async def path(api: ApiClient) -> AsyncIterator[str]:
    """Of the log of a Pod that has a process."""
    running = pod("headrace-3", nodeName="here")
    running["metadata"]["labels"] = {"apps.kubernetes.io/pod-index": "3"}
    space = Space(api, "default")
    await space.create("pods", running)
    yield space.path("pods", "headrace-3", "log")
    await api.request("DELETE", space.path("pods", "headrace-3"), query={"gracePeriodSeconds": "0"})


async def test_should_show_the_log_as_much_of_it_as_is_asked_for(embedded: Embedded, api: ApiClient, path: str) -> None:
    assert (await api.get(path)).text == "", "no process has written anything"
    lines = [f"2026-11-21 09:00:00,{number:03} INFO line {number}\n" for number in range(500)]
    (embedded.logs / "pod-3.log").write_text("".join(lines) + "unended")
    assert (await api.get(path)).text == "".join(lines) + "unended"
    assert (await api.get(path, {"tailLines": "2", "container": "broker"})).text == lines[-1] + "unended"
    assert (await api.get(path, {"tailLines": "2", "limitBytes": "10"})).text == lines[-1][:10]
    assert (await api.get(path, {"sinceSeconds": "1"})).text == ""


async def test_should_follow_the_log_until_the_pod_is_gone(embedded: Embedded, api: ApiClient, path: str) -> None:
    log = embedded.logs / "pod-3.log"
    log.write_text("old\nlast\n")
    query = {"follow": "true", "tailLines": "1"}
    async with asyncio.timeout(_PATIENCE_S), api.session.get(embedded.url + path, params=query) as answer:
        assert await answer.content.readline() == b"last\n"
        with log.open("a") as writer:
            writer.write("new\n")
        assert await answer.content.readline() == b"new\n"
        log.rename(log.with_suffix(".1"))
        log.write_text("in the next file\n")
        assert await answer.content.readline() == b"in the next file\n"
        await api.request("DELETE", path.removesuffix("/log"), query={"gracePeriodSeconds": "0"})
        assert await answer.content.read() == b""
