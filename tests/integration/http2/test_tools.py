"""Other people's clients: curl over both protocols, and nghttp."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.http2_app import Application, serving
from tests.support.patience import patient
from tests.support.tools import require_tool

PROTOCOLS = {"--http2-prior-knowledge": [2, 0], "--http1.1": [1, 1]}


async def run(*command: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(patient(60)):
        stdout, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    return stdout


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serving(Application()) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_should_serve_curl_over_both_protocols(url: str, protocol: str, tmp_path: Path) -> None:
    require_tool("curl")
    upload = tmp_path / "upload"
    upload.write_bytes(bytes(30 << 20))
    curl = ("curl", "-sS", protocol)

    assert json.loads(await run(*curl, f"{url}/facts"))["version"] == PROTOCOLS[protocol]
    assert await run(*curl, f"{url}/stream") == b"0\n1\n2\n"
    assert await run(*curl, "-o", "/dev/null", "-w", "%{http_code}", f"{url}/missing") == b"404"
    assert await run(*curl, "-o", "/dev/null", "-w", "%{http_code}", "-X", "DELETE", f"{url}/upload") == b"405"
    head = await run(*curl, "-I", f"{url}/large?mib=3")
    assert b"content-length: 3145728" in head.lower()
    assert len(await run(*curl, f"{url}/large?mib=30")) == 30 << 20
    answer = await run(*curl, "--data-binary", f"@{upload}", f"{url}/upload")
    assert json.loads(answer)["bytes"] == 30 << 20


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_should_take_an_upload_of_unknown_length(url: str, protocol: str) -> None:
    require_tool("curl")
    command = f"printf '%s' one two | curl -sS {protocol} -X POST -T - {url}/read"
    assert await run("sh", "-c", command) == b"onetwo"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_should_continue_when_a_client_expects_it(url: str, protocol: str) -> None:
    require_tool("curl")
    command = ("curl", "-sS", "-v", protocol, "-H", "Expect: 100-continue", "--data-binary", "x", f"{url}/read")
    assert await run(*command) == b"x"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_should_answer_413_when_the_body_is_over_the_limit(url: str, protocol: str, tmp_path: Path) -> None:
    require_tool("curl")
    upload = tmp_path / "upload"
    upload.write_bytes(bytes(65 << 20))
    command = ("curl", "-sS", protocol, "-o", "/dev/null", "-w", "%{http_code}", "--data-binary", f"@{upload}")
    assert await run(*command, f"{url}/upload") == b"413"


async def test_should_serve_nghttp(url: str, tmp_path: Path) -> None:
    require_tool("nghttp")
    upload = tmp_path / "upload"
    upload.write_bytes(bytes(30 << 20))

    assert await run("nghttp", f"{url}/hello/x") == b"hello x, "
    assert len(await run("nghttp", f"{url}/large?mib=30")) == 30 << 20
    assert json.loads(await run("nghttp", "-d", str(upload), f"{url}/upload"))["bytes"] == 30 << 20
    statistics = (await run("nghttp", "-n", "-s", "-m", "200", "-v", f"{url}/hello/x")).decode()
    assert statistics.count(":status: 200") == 200
    assert "RST_STREAM" not in statistics
    assert "recv GOAWAY" not in statistics
