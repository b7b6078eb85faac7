"""The search for the brokers: the argument, `HEADRACE_SERVER`, a running `headrace dev`, or an error with the remedy.

A server is the URL of any broker (`host:9701` is `http://host:9701`); several, separated by commas, are tried in order.
`headrace dev` describes itself in `$HEADRACE_HOME/dev.json` (default `~/.headrace`), in the form that
`headrace dev status -o json` prints. Brokers with `https` are verified against the CA bundle that the argument names,
else `HEADRACE_CA_FILE`, else the system's roots.

Headers with credentials go over TLS or to this machine only, and only to brokers of the cluster: those that the user
named, and those of the metadata that prove by the user's own bundle that they belong to it. Commands that never read
records load this module too, so it imports no transport.
"""

import json
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headrace.core.browsers import is_loopback_name
from headrace.core.errors import LocalError

SERVER_VARIABLE = "HEADRACE_SERVER"
CA_FILE_VARIABLE = "HEADRACE_CA_FILE"
HOME_VARIABLE = "HEADRACE_HOME"
DEV_STATE_NAME = "dev.json"
_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:]+\]|[^/:\s]+):[0-9]{1,5}")


class NoServerError(LocalError):
    """Nothing says where the brokers are."""

    code = "NoServer"


@dataclass(frozen=True, slots=True)
class Servers:
    """The way to the brokers, for callers that know more than a URL."""

    urls: tuple[str, ...]
    """The URLs of brokers, or of a proxy that leads to them, best first."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of every request; they are looked up for each, so that a token may change."""
    ssl_context: ssl.SSLContext | None = None
    """The trust in `https` brokers. None: the system's roots."""
    reaches_leaders: bool = True
    """Whether leaders' own URLs are tried. False: every request goes to `urls` (a proxy, for example)."""

    def __post_init__(self) -> None:
        """Raise LocalError where credentials would be sent in the clear."""
        for url in self.urls if self.headers else ():
            if not keeps_secrets(url):
                raise LocalError(
                    f"server {url!r}: a token is never sent over plain http, which anybody on the way can read; use"
                    " https (docs/tls.md), a broker of this machine (kubectl port-forward), or no token"
                )

    def sends_to(self, url: str) -> bool:
        """Return whether requests may go to this URL, which metadata names, with all their headers.

        If they may not, a server that the user named passes them on.
        """
        if not self.headers:
            return True
        if not keeps_secrets(url):
            return False
        asked, named = urlsplit(url), [urlsplit(each) for each in self.urls]
        if any((asked.scheme, asked.netloc) == (each.scheme, each.netloc) for each in named):
            return True
        if is_loopback_name(asked.hostname or ""):
            return all(is_loopback_name(each.hostname or "") for each in named)
        return self.ssl_context is not None


def keeps_secrets(url: str) -> bool:
    """Return whether nobody on the way can read the requests: they go over TLS, or within this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback_name(parts.hostname or "")


def find_servers(
    server: str | Servers | None, ca_file: str | None = None, environ: Mapping[str, str] = os.environ
) -> Servers:
    """Find the brokers. Raises NoServerError, or LocalError for what is no URL and for a bundle that cannot be read."""
    if isinstance(server, Servers):
        if not server.urls:
            raise NoServerError("server has no urls: give those of brokers, for example http://127.0.0.1:9701")
        return server
    return Servers(_urls(server, environ), ssl_context=_trust(ca_file or environ.get(CA_FILE_VARIABLE)))


def _urls(server: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    if server:
        return _parse(server, "server")
    if environ.get(SERVER_VARIABLE):
        return _parse(environ[SERVER_VARIABLE], SERVER_VARIABLE)
    state = running_dev(environ)
    if state is not None:
        if not state["brokers"]:
            raise NoServerError(
                "`headrace dev` runs without a broker: `kubectl scale statefulset headrace --replicas 3` starts three;"
                " or name a broker with --server"
            )
        return tuple(str(broker["url"]).rstrip("/") for broker in state["brokers"])
    raise NoServerError(
        f"no server is given and no `headrace dev` is running: start `headrace dev`, or name a broker with --server,"
        f" Producer(server=...) or {SERVER_VARIABLE}, for example http://127.0.0.1:9701"
    )


def _trust(ca_file: str | None) -> ssl.SSLContext | None:
    if not ca_file:
        return None
    from headrace.http2.origin import trusting  # Most clients do not need it.

    return trusting(ca_file)


def running_dev(environ: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """Return the state of the `headrace dev` that is running on this machine; None where none is."""
    path = headrace_home(environ) / DEV_STATE_NAME
    try:
        state = json.loads(path.read_text())
        # A broker has no pid between two lives; the API's process lives as long as the whole.
        pids = [state["api"]["pid"], *(broker["pid"] for broker in state["brokers"])]
        alive = any(_is_alive(int(pid)) for pid in pids if pid is not None)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return state if alive else None


def headrace_home(environ: Mapping[str, str] = os.environ) -> Path:
    return Path(environ.get(HOME_VARIABLE) or Path.home() / ".headrace")


def _parse(text: object, source: str) -> tuple[str, ...]:
    if not isinstance(text, str):
        raise TypeError(f"{source} is {type(text).__name__}, not str: write a broker's URL as http://host:9701")
    urls = tuple(_with_scheme(url.strip().rstrip("/")) for url in text.split(",") if url.strip())
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LocalError(f"{source} {url!r} is not a broker's URL: write it as http://host:9701")
    if not urls:
        raise LocalError(f"{source} is empty: write a broker's URL, for example http://127.0.0.1:9701")
    return urls


def _with_scheme(url: str) -> str:
    """Add the scheme to `host:9701`, the form that users of other systems write."""
    return f"http://{url}" if _HOST_AND_PORT.fullmatch(url) else url


def _is_alive(pid: int) -> bool:
    """Return whether the process lives; one that belongs to another user counts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
