"""Something behind the proxy of an API server: a small HTTP server, and the Pod and the Service that lead to it."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.api_objects import pod, service
from tests.support.api_server import ApiServer, Space

LABELS = {"app": "web"}


class _Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        told = json.dumps({"method": self.command, "path": self.path, "headers": headers, "body": body}).encode()
        status = 302 if self.path == "/moved" else 418
        self.send_response(status)
        self.send_header("Location", "/there?x=1")
        self.send_header("Content-Length", str(len(told)))
        self.send_header("X-Kept", "yes")
        self.send_header("Connection", "X-Dropped")
        self.send_header("X-Dropped", "yes")
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_POST = do_DELETE = handle_any  # noqa: N815 - the names are http.server's

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


@contextmanager
def echoing(host: str) -> Iterator[int]:
    with ThreadingHTTPServer((host, 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def address_of(api_server: ApiServer) -> str:
    """Of this machine. A kube-apiserver goes to no loopback address, the embedded API to no other."""
    if api_server.embedded:
        return "127.0.0.1"
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: the system only chooses a source
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address: str = probe.getsockname()[0]
    return address


async def run_web(space: Space, api_server: ApiServer, host: str, port: int, name: str = "web") -> None:
    """A ready Pod that listens there, and a Service of this name for it."""
    container = {"name": "web", "image": "web", "ports": [{"name": "web", "containerPort": port}]}
    running = pod("web-0", nodeName="node0", containers=[container])
    running["metadata"]["labels"] = LABELS
    await space.create("pods", running)
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "podIP": host, "podIPs": [{"ip": host}], "conditions": conditions}
    path = space.path("pods", "web-0", "status")
    answer = await space.api.request(
        "PATCH", path, {"status": status}, content_type="application/strategic-merge-patch+json"
    )
    assert answer.status == 200, answer.text
    ports = [{"name": "http", "port": 80, "targetPort": "web"}]
    await space.create("services", service(name, ports=ports, selector=LABELS, clusterIP="None"))
    if not api_server.embedded:  # no controller is there to do it
        target = {"ip": host, "targetRef": {"kind": "Pod", "name": "web-0", "namespace": space.name}}
        subsets = [{"addresses": [target], "ports": [{"name": "http", "port": port}]}]
        endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name}, "subsets": subsets}
        answer = await space.api.request("POST", f"/api/v1/namespaces/{space.name}/endpoints", endpoints)
        assert answer.status == 201, answer.text
