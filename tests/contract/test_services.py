"""Services, and the proxies to them and to Pods: what is stored, what is refused, and what comes back from behind."""

import socket
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.api_objects import pod, service
from tests.support.api_server import ApiServer, Space
from tests.support.behind_proxy import LABELS, address_of, echoing, run_web

_STRATEGIC = "application/strategic-merge-patch+json"
_PORT_RULE = "must be between 1 and 65535, inclusive"
_NAME_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


async def test_should_fill_in_what_a_service_leaves_out(space: Space) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": "web"}, {"name": "more", "port": 81}]
    created = await space.create("services", service(ports=ports, selector=LABELS, clusterIP="None"))
    spec = created["spec"]
    assert (spec["type"], spec["sessionAffinity"], spec["internalTrafficPolicy"]) == ("ClusterIP", "None", "Cluster")
    assert (spec["clusterIP"], spec["clusterIPs"]) == ("None", ["None"])
    assert spec["ports"] == [
        {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "web"},
        {"name": "more", "protocol": "TCP", "port": 81, "targetPort": 81},
    ]
    assert created["status"] == {"loadBalancer": {}}
    assert "generation" not in created["metadata"]


async def test_should_keep_its_address_when_it_is_replaced_and_let_nobody_change_it(space: Space) -> None:
    created = await space.create("services", service(ports=[{"port": 80}]))
    path = space.path("services", "web")
    replaced = await space.api.request("PUT", path, service(ports=[{"port": 81}]))
    assert replaced.body["spec"]["clusterIP"] == created["spec"]["clusterIP"]
    assert replaced.body["spec"]["ports"] == [{"port": 81, "protocol": "TCP", "targetPort": 81}]
    answer = await space.api.merge(path, {"spec": {"clusterIP": "192.0.2.1"}})
    assert answer.message == (
        'Service "web" is invalid: spec.clusterIPs[0]: Invalid value: ["192.0.2.1"]: may not change once set'
    )
    deleted = await space.api.request("DELETE", path)
    assert (deleted.status, deleted.body["kind"]) == (200, "Service")
    assert "deletionTimestamp" not in deleted.body["metadata"]


async def test_should_merge_the_ports_of_a_service_by_their_numbers(space: Space) -> None:
    await space.create("services", service(ports=[{"name": "a", "port": 80}, {"name": "b", "port": 81}]))
    patch = {"spec": {"ports": [{"port": 81, "name": "c"}]}}
    answer = await space.api.request("PATCH", space.path("services", "web"), patch, content_type=_STRATEGIC)
    assert {(p["name"], p["port"]) for p in answer.body["spec"]["ports"]} == {("a", 80), ("c", 81)}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({}, {("spec.ports", "FieldValueRequired", "Required value")}),
        (
            {"ports": [{"port": 80}, {"port": 81}]},
            {(f"spec.ports[{n}].name", "FieldValueRequired", "Required value") for n in range(2)},
        ),
        (
            {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]},
            {("spec.ports[1].name", "FieldValueDuplicate", 'Duplicate value: "a"')},
        ),
        (
            {"ports": [{"port": 0, "name": "A_"}]},
            {
                ("spec.ports[0].name", "FieldValueInvalid", f'Invalid value: "A_": {_NAME_RULE}'),
                ("spec.ports[0].port", "FieldValueInvalid", f"Invalid value: 0: {_PORT_RULE}"),
                ("spec.ports[0].targetPort", "FieldValueInvalid", f"Invalid value: 0: {_PORT_RULE}"),
            },
        ),
        (
            {"ports": [{"port": 80, "targetPort": "a_b", "protocol": "X"}]},
            {
                (
                    "spec.ports[0].protocol",
                    "FieldValueNotSupported",
                    'Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"',
                ),
                (
                    "spec.ports[0].targetPort",
                    "FieldValueInvalid",
                    'Invalid value: "a_b": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)',
                ),
            },
        ),
        (
            {"ports": [{"port": 80}], "type": "X", "sessionAffinity": "Y"},
            {
                (
                    "spec.type",
                    "FieldValueNotSupported",
                    'Unsupported value: "X": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"',
                ),
                (
                    "spec.sessionAffinity",
                    "FieldValueNotSupported",
                    'Unsupported value: "Y": supported values: "ClientIP", "None"',
                ),
            },
        ),
    ],
)
async def test_should_refuse_a_service_that_cannot_work(
    space: Space, spec: dict[str, Any], causes: set[tuple[str, str, str]]
) -> None:
    answer = await space.api.request("POST", space.path("services"), service(**spec))
    assert answer.status == 422
    assert answer.causes == causes


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"ports": {}}, "object into Go struct field ServiceSpec.spec.ports of type []v1.ServicePort"),
        ({"ports": [{"port": "80"}]}, "string into Go struct field ServicePort.spec.ports.port of type int32"),
        (
            {"ports": [{"targetPort": True}]},
            "bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
        ({"selector": {"a": 1}}, "number into Go struct field ServiceSpec.spec.selector of type string"),
    ],
)
async def test_should_refuse_a_service_that_it_cannot_read(space: Space, spec: dict[str, Any], why: str) -> None:
    answer = await space.api.request("POST", space.path("services"), service(**spec))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == f'Service in version "v1" cannot be handled as a Service: json: cannot unmarshal {why}'


async def test_should_warn_of_members_that_no_service_has(space: Space) -> None:
    answer = await space.api.request("POST", space.path("services"), service(foo=1, ports=[{"port": 80, "bar": 2}]))
    assert answer.warnings == ('299 - "unknown field \\"spec.foo\\""', '299 - "unknown field \\"spec.ports[0].bar\\""')


async def test_should_say_why_nothing_is_behind_a_proxy(space: Space) -> None:
    await space.create("services", service(ports=[{"port": 80}]))
    await space.create("services", service("elsewhere", type="ExternalName", externalName="example.com"))
    await space.create("pods", pod())
    expected = {
        "services/nope": (404, 'services "nope" not found'),
        "services/web": (404, 'services "web" not found'),
        "services/http:web:80": (404, 'services "web" not found'),
        "services/web:81": (503, 'no service port 81 found for service "web"'),
        "services/elsewhere:80": (503, 'no service port 80 found for service "elsewhere"'),
        "services/ftp:web:80": (400, 'invalid service request "ftp:web:80"'),
        "services/a:b:c:d": (400, 'invalid service request "a:b:c:d"'),
        "pods/nope": (404, 'pods "nope" not found'),
        "pods/http:headrace-0": (404, 'pods "http" not found'),
        "pods/headrace-0": (400, "address not allowed"),
        "pods/ftp:headrace-0:1": (400, 'invalid pod request "ftp:headrace-0:1"'),
    }
    found = {}
    for place in expected:
        answer = await space.api.get(f"/api/v1/namespaces/{space.name}/{place}/proxy/x")
        found[place] = (answer.status, answer.message)
    assert found == expected


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({"container": "other"}, 400, "container other is not valid for pod headrace-0"),
        ({"tailLines": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (
            {"tailLines": "-1"},
            422,
            'PodLogOptions "headrace-0" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0',
        ),
        (
            {"limitBytes": "0"},
            422,
            'PodLogOptions "headrace-0" is invalid: limitBytes: Invalid value: 0: must be greater than 0',
        ),
        (
            {"sinceSeconds": "1", "sinceTime": "2026-11-21T09:00:00Z"},
            422,
            'PodLogOptions "headrace-0" is invalid: []: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be '
            "specified",
        ),
    ],
)
async def test_should_refuse_what_no_log_can_answer(
    space: Space, query: dict[str, str], status: int, message: str
) -> None:
    await space.create("pods", pod(nodeName="node0"))
    answer = await space.api.get(space.path("pods", "headrace-0", "log"), query)
    assert (answer.status, answer.message) == (status, message)


async def test_should_show_no_log_of_a_pod_that_runs_nowhere(space: Space) -> None:
    await space.create("pods", pod())
    answer = await space.api.get(space.path("pods", "headrace-0", "log"))
    assert (answer.status, answer.text) == (204, "")
    await space.create("pods", pod("other", nodeName="node0"))
    answer = await space.api.get(space.path("pods", "other", "log"))
    assert (answer.status, answer.message) == (404, 'pods "node0" not found')


@pytest.mark.parametrize("place", ["services/web:http", "services/http:web:80", "pods/web-0", "pods/http:web-0:{port}"])
async def test_should_pass_a_request_to_what_is_behind_and_its_answer_back(
    api_server: ApiServer, space: Space, place: str
) -> None:
    host = address_of(api_server)
    with echoing(host) as port:
        await run_web(space, api_server, host, port)
        base = f"/api/v1/namespaces/{space.name}/{place.format(port=port)}/proxy"
        answer = await space.api.request("POST", f"{base}/a/b", {"x": 1}, query={"c": "d e"})
        assert answer.status == 418
        assert {name: answer.body[name] for name in ("method", "path", "body")} == {
            "method": "POST",
            "path": "/a/b?c=d+e",
            "body": '{"x": 1}',
        }
        headers = answer.body["headers"]
        assert (headers["content-type"], headers["x-forwarded-uri"]) == ("application/json", f"{base}/a/b")
        assert headers["x-forwarded-for"]
        assert headers["host"] == urlsplit(space.api.access.url).netloc
        assert "authorization" not in headers
        assert (answer.headers["X-Kept"], "X-Dropped" in answer.headers) == ("yes", False)

        assert (await space.api.request("DELETE", f"{base}/")).body["method"] == "DELETE"
        moved = await space.api.get(f"{base}/moved")
        assert moved.body["path"] == "/there?x=1", "a redirect leads through the proxy again"
        assert (await space.api.get(base)).body["path"] == "/"


async def test_should_answer_503_where_what_is_behind_does_not_listen(api_server: ApiServer, space: Space) -> None:
    host = address_of(api_server)
    with closing(socket.socket()) as closed:
        closed.bind((host, 0))
        port = closed.getsockname()[1]
        await run_web(space, api_server, host, port)
        for place in ("services/web:http", "pods/web-0"):
            answer = await space.api.get(f"/api/v1/namespaces/{space.name}/{place}/proxy/")
            assert (answer.status, answer.message) == (
                503,
                f"error trying to reach service: dial tcp {host}:{port}: connect: connection refused",
            )
        answer = await space.api.get(f"/api/v1/namespaces/{space.name}/services/web/proxy/")
        assert (answer.status, answer.message) == (503, 'no endpoints available for service "web"')


async def test_should_have_no_endpoints_where_no_pod_is_ready(api_server: ApiServer, space: Space) -> None:
    host = address_of(api_server)
    await run_web(space, api_server, host, 1)
    if not api_server.embedded:
        pytest.skip("a bare kube-apiserver has no controller that would take the Pod out")
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await space.api.request("PATCH", space.path("pods", "web-0", "status"), unready, content_type=_STRATEGIC)
    answer = await space.api.get(f"/api/v1/namespaces/{space.name}/services/web:http/proxy/")
    assert (answer.status, answer.message) == (503, 'no endpoints available for service "web:http"')
    await space.api.request("DELETE", space.path("pods", "web-0"), query={"gracePeriodSeconds": "0"})
    answer = await space.api.get(f"/api/v1/namespaces/{space.name}/services/web:http/proxy/")
    assert (answer.status, answer.message) == (503, 'no endpoints available for service "web"')
