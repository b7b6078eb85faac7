"""A real browser that looks at a page which attacks what runs on its reader's machine.

`Site` serves the page, hears what it reports, and notes every other request that comes to it. Such requests go on to
where its name leads by then, with the very headers that the browser sent: a name that was made to lead to this machine
(DNS rebinding) is not told apart from that by anybody behind it. A site that leads nowhere is a witness: it answers
all of them, so that a test knows what a page does send.

`visit` runs Chromium for one page, with a profile of its own, until the page has reported; `shown_by` for a user who
types an address.
"""

import http.client
import http.server
import json
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.cluster import Answer
from tests.support.cluster import http as send
from tests.support.patience import patient
from tests.support.tools import require_tool

_PAGE = Path(__file__).with_name("attacking_page.html")
_VISIT_S = 60
_STOP_S = 30
_REPEAT_S = 60
_NOT_PASSED_ON = frozenset({"connection", "content-length", "transfer-encoding", "accept-encoding"})
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # There is none for root, and it sees no page but ours.
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One thing that a page tries. `by`: `no-cors` or `cors` of fetch, `form`, `img`, `script` or `socket`."""

    name: str
    by: str
    url: str
    method: str = "GET"
    body: str = ""
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came to a site."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def repeated_by_a_program(self, base_url: str) -> Answer:
        """Send it there without what tells of a browser; urllib would add a Content-Type."""
        parts = urlsplit(base_url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=patient(_REPEAT_S))
        with closing(connection):
            media_type = self.headers.get("content-type")
            headers = {"Content-Type": media_type} if media_type else {}
            connection.request(self.method, self.path, self.body or None, headers)
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())


@dataclass(slots=True)
class Site:
    """Listens on a port of 127.0.0.1; names that lead there are the browser's affair."""

    plan: Sequence[Attempt] = ()
    leads_to: Mapping[str, str] = field(default_factory=dict)
    """Base URLs by the beginnings of paths."""
    seen: list[Seen] = field(default_factory=list)
    reports: "queue.Queue[dict[str, Answered]]" = field(default_factory=queue.Queue)
    port: int = 0

    @contextmanager
    def serving(self) -> Iterator["Site"]:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def url(self, host: str) -> str:
        return f"http://{host}:{self.port}"

    def answer(self, request: Seen) -> Answer:
        match request.method, request.path:
            case "GET", "/":
                return Answer(200, {"content-type": "text/html"}, _PAGE.read_bytes())
            case "GET", "/plan":
                return Answer(200, {}, json.dumps([asdict(attempt) for attempt in self.plan]).encode())
            case "POST", "/report":
                found = json.loads(request.body)
                self.reports.put({name: Answered(**answered) for name, answered in found.items()})
                return Answer(204, {}, b"")
            case _:
                self.seen.append(request)
                return self._passed_on(request)

    def _passed_on(self, request: Seen) -> Answer:
        for beginning, base_url in self.leads_to.items():
            if request.path.startswith(beginning):
                headers = {name: value for name, value in request.headers.items() if name not in _NOT_PASSED_ON}
                return send(request.method, base_url + request.path, request.body, headers)
        return Answer(404, {}, b"")


@dataclass(frozen=True, slots=True)
class Answered:
    """The part of an answer that a page could see: status 0 and no text where it could not look."""

    status: int
    text: str


UNREADABLE = Answered(0, "")


def visit(site: Site, host: str, profile: Path) -> dict[str, Answered]:
    """Return the report of the page at this host of the site; every name leads to this machine."""
    log_file = profile.with_suffix(".log")
    with log_file.open("wb") as log:
        browser = subprocess.Popen(_command(profile, site.url(host)), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            return site.reports.get(timeout=patient(_VISIT_S))
        except queue.Empty:
            raise AssertionError(f"the page reported nothing:\n{log_file.read_text()[-3000:]}") from None
        finally:
            _end(browser)


def shown_by(url: str, profile: Path) -> str:
    """The document that a user sees who types the address."""
    command = _command(profile, "--dump-dom", url)
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(_VISIT_S), check=True)
    return done.stdout


def _end(browser: subprocess.Popen[bytes]) -> None:
    """Its own children end with it."""
    browser.terminate()
    try:
        browser.wait(patient(_STOP_S))
    except subprocess.TimeoutExpired:
        browser.kill()
        browser.wait()
        raise


def _command(profile: Path, *more: str) -> list[str]:
    resolving = "--host-resolver-rules=MAP * 127.0.0.1"
    return [require_tool("chromium"), *_OPTIONS, resolving, f"--user-data-dir={profile}", *more]


def _handler(site: Site) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

        def _answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            answer = site.answer(Seen(self.command, self.path, headers, body))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("content-type", "text/plain"))
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = _answer  # noqa: N815 - http.server's names

    return Handler
