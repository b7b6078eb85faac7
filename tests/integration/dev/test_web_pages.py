"""No page in the user's browser drives the Kubernetes API that runs on this machine."""

import json
import socket
from collections.abc import Iterator

import pytest

from tests.support.api_objects import pod
from tests.support.api_server import embedded_api
from tests.support.cluster import http
from tests.support.web_pages import OTHER_SITE, PAGES, REBOUND
from tests.support.world import JSON_BODY

NAMESPACES = "/api/v1/namespaces"
NAMESPACE = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pages"}}).encode()
IMAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_api(tmp_path_factory.mktemp("api"), "--pod-ports", "1", "1") as running:
        yield running.url


@PAGES
def test_should_take_nothing_from_a_page_when_it_posts_to_the_api(api: str, headers: dict[str, str]) -> None:
    for media_type in (JSON_BODY, {}):
        refused = http("POST", api + NAMESPACES, NAMESPACE, media_type | headers)
        assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert http("GET", f"{api}{NAMESPACES}/pages").status == 404


@pytest.mark.parametrize("headers", [OTHER_SITE, REBOUND, IMAGE], ids=["site", "rebound", "image"])
def test_should_show_nothing_to_a_page(api: str, headers: dict[str, str]) -> None:
    assert http("GET", api + NAMESPACES, headers=headers).status == 403
    assert http("GET", f"{api}{NAMESPACES}/default/pods/x/proxy/", headers=headers).status == 403


@pytest.mark.parametrize("media_type", ["text/plain;charset=UTF-8", "application/x-www-form-urlencoded"])
def test_should_demand_a_media_type_that_a_page_has_to_ask_for(api: str, media_type: str) -> None:
    """A page may send these without asking before (a preflight request)."""
    assert http("POST", api + NAMESPACES, NAMESPACE, {"Content-Type": media_type}).status == 415
    assert http("GET", f"{api}{NAMESPACES}/pages").status == 404


@pytest.mark.parametrize(
    ("name", "host"), [("a", "localhost:{port}"), ("b", "127.0.0.1:{port}"), ("c", "[::1]:{port}")]
)
def test_should_take_what_programs_of_this_machine_send(api: str, name: str, host: str) -> None:
    headers = JSON_BODY | {"Host": host.format(port=api.rpartition(":")[2])}
    body = NAMESPACE.replace(b"pages", b"programs-" + name.encode())
    assert http("POST", api + NAMESPACES, body, headers).status == 201


def test_should_be_no_door_to_the_other_ports_of_this_machine(api: str) -> None:
    """Whoever writes a Pod may write any address and port into it."""
    pods = f"{api}{NAMESPACES}/default/pods"
    with socket.create_server(("127.0.0.1", 0)) as private:
        port = private.getsockname()[1]
        containers = [{"name": "door", "image": "door", "ports": [{"containerPort": port}]}]
        made = http("POST", pods, json.dumps(pod("door", containers=containers)).encode(), JSON_BODY)
        assert made.status == 201
        status = json.dumps({"status": {"podIP": "127.0.0.1"}}).encode()
        merge = {"Content-Type": "application/merge-patch+json"}
        assert http("PATCH", f"{pods}/door/status", status, merge).status == 200
        for name in ("door", f"door:{port}"):
            refused = http("GET", f"{pods}/{name}/proxy/x")
            assert (refused.status, refused.json["message"]) == (400, "address not allowed")
        private.settimeout(0)
        with pytest.raises(BlockingIOError):
            private.accept()
