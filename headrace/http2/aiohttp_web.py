"""The server's half of aiohttp, loaded as `aiohttp_library` loads the rest; a client does without."""

from headrace.http2.aiohttp_library import no_certificates

__all__ = ["HttpProcessingError", "RequestHandler", "web"]

with no_certificates():
    from aiohttp import web
    from aiohttp.http import HttpProcessingError
    from aiohttp.web_protocol import RequestHandler
