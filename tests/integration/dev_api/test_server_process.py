"""The process itself: its state survives, its port is its own, its end is clean."""

import asyncio
import signal
import socket
from contextlib import closing
from pathlib import Path

from tests.support.api_objects import topic
from tests.support.api_server import complaint, embedded_api
from tests.support.kubeconfig import ApiClient, connect, write_kubeconfig
from tests.support.patience import patient
from tests.support.world import TOPICS

_EXIT_TIMEOUT_S = patient(60)


def _kubeconfig(tmp_path: Path, url: str) -> Path:
    return write_kubeconfig(tmp_path / "kubeconfig", url)


async def _create(api: ApiClient, name: str) -> int:
    answer = await api.request("POST", TOPICS, topic(name))
    assert answer.status == 201, answer.text
    return int(answer.body["metadata"]["resourceVersion"])


async def test_should_go_on_where_it_stopped(tmp_path: Path) -> None:
    with embedded_api(tmp_path / "data") as first:
        async with connect(_kubeconfig(tmp_path, first.url)) as api:
            await _create(api, "a")
            gone = await _create(api, "gone")
            await api.request("DELETE", f"{TOPICS}/gone")
            before = (await api.get(TOPICS)).body
    with embedded_api(tmp_path / "data") as second:
        async with connect(_kubeconfig(tmp_path, second.url)) as api:
            after = (await api.get(TOPICS)).body
            assert after["items"] == before["items"]
            assert int(after["metadata"]["resourceVersion"]) >= int(before["metadata"]["resourceVersion"]) > gone
            assert await _create(api, "b") > int(before["metadata"]["resourceVersion"])


async def test_should_lose_no_answered_write_when_it_is_killed(tmp_path: Path) -> None:
    versions: dict[str, int] = {}

    async def write(api: ApiClient, writer: int) -> None:
        for number in range(50):
            name = f"t{writer}-{number}"
            versions[name] = await _create(api, name)

    with embedded_api(tmp_path / "data") as first:
        async with connect(_kubeconfig(tmp_path, first.url)) as api:
            writers = [asyncio.ensure_future(write(api, writer)) for writer in range(4)]
            await asyncio.wait(writers, return_when=asyncio.FIRST_COMPLETED)
            first.kill()
            await asyncio.gather(*writers, return_exceptions=True)
    assert len(versions) >= 50

    with embedded_api(tmp_path / "data") as second:
        async with connect(_kubeconfig(tmp_path, second.url)) as api:
            listed = (await api.get(TOPICS)).body
            stored = {i["metadata"]["name"]: int(i["metadata"]["resourceVersion"]) for i in listed["items"]}
            assert versions.items() <= stored.items()
            assert len(set(stored.values())) == len(stored)
            assert int(listed["metadata"]["resourceVersion"]) >= max(stored.values())


async def test_should_tell_a_watcher_from_before_the_restart_whether_it_missed_anything(tmp_path: Path) -> None:
    with embedded_api(tmp_path / "data") as first:
        async with connect(_kubeconfig(tmp_path, first.url)) as api:
            early = await _create(api, "a")
            await _create(api, "b")
            latest = (await api.get(TOPICS)).body["metadata"]["resourceVersion"]
    with embedded_api(tmp_path / "data") as second:
        async with connect(_kubeconfig(tmp_path, second.url)) as api:
            async with api.watch(TOPICS, resourceVersion=str(early)) as stream:
                event = await stream.next()
                assert event is not None
                assert event["object"]["code"] == 410
            async with api.watch(TOPICS, resourceVersion=latest) as stream:
                await _create(api, "c")
                event = await stream.next()
                assert event is not None
                assert event["object"]["metadata"]["name"] == "c"


async def test_should_end_watches_when_it_stops(tmp_path: Path) -> None:
    with embedded_api(tmp_path / "data") as running:
        async with connect(_kubeconfig(tmp_path, running.url)) as api:
            async with api.watch(TOPICS) as stream:
                running.process.send_signal(signal.SIGTERM)
                assert await stream.rest() == []
            assert running.process.wait(_EXIT_TIMEOUT_S) == 0


def test_should_say_in_a_sentence_that_the_port_is_in_use(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        code, said = complaint(tmp_path / "data", "--port", str(port))
    assert code == 1
    assert said.startswith(f"headrace: cannot listen on 127.0.0.1:{port}: ")
    assert "is the port in use?" in said
    assert "Traceback" not in said


def test_should_say_in_a_sentence_that_another_server_has_the_data(tmp_path: Path) -> None:
    with embedded_api(tmp_path / "data"):
        code, said = complaint(tmp_path / "data", "--port", "0")
    assert code == 1
    assert said.startswith(f"headrace: cannot open the API's state in {tmp_path / 'data'}: ")
    assert "Traceback" not in said


def test_should_say_in_a_sentence_that_there_are_no_definitions(tmp_path: Path) -> None:
    empty = tmp_path / "crds"
    empty.mkdir()
    said = f"headrace: no CRDs found in {empty}: there is no *.yaml file with one\n"
    assert complaint(tmp_path / "data", "--port", "0", "--crds", str(empty)) == (1, said)


async def test_should_refuse_a_body_that_is_too_large(tmp_path: Path) -> None:
    with embedded_api(tmp_path / "data") as running:
        async with connect(_kubeconfig(tmp_path, running.url)) as api:
            answer = await api.request("POST", TOPICS, b" " * (4 << 20))
            assert (answer.status, answer.reason) == (413, "RequestEntityTooLarge")
            assert answer.message == "Request entity too large: limit is 3145728"
