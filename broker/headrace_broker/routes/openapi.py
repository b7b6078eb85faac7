"""GET /openapi.json: `openapi.yaml`, which stands beside this module, as JSON.

Read with the first request and kept: a broker that nobody asks never loads a YAML parser. That every path is in it, and
no other, is checked by a unit test; that it is true, by `make openapi-check`.
"""

import asyncio
import json
from functools import cache
from importlib.resources import files

from aiohttp import web


async def openapi(_: web.Request) -> web.StreamResponse:
    """GET /openapi.json"""
    return web.Response(body=await asyncio.to_thread(_document), content_type="application/json")


@cache
def _document() -> bytes:
    import yaml

    text = files("headrace_broker.routes").joinpath("openapi.yaml").read_text()
    return json.dumps(yaml.safe_load(text)).encode() + b"\n"
