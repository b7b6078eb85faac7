"""What requests say: addresses, bodies, what the client accepts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dev.api.documents import decode, load_yaml, read_protobuf
from headrace.dev.api.requests import Address, Form, negotiate, parse_address
from headrace.dev.api.status import StatusError

_GROUP = ("headrace.io", "v1alpha1")


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/api/v1/namespaces", Address("", "v1", "namespaces")),
        ("/api/v1/namespaces/a", Address("", "v1", "namespaces", None, "a")),
        ("/api/v1/namespaces/a/status", Address("", "v1", "namespaces", None, "a", "status")),
        ("/api/v1/namespaces/a/pods", Address("", "v1", "pods", "a")),
        ("/api/v1/namespaces/a/pods/p/status", Address("", "v1", "pods", "a", "p", "status")),
        ("/apis/headrace.io/v1alpha1/topics", Address(*_GROUP, "topics")),
        ("/apis/headrace.io/v1alpha1/namespaces/a/topics/t", Address(*_GROUP, "topics", "a", "t")),
        ("/apis/headrace.io", None),
        ("/apis/headrace.io/v1alpha1/namespaces/a/topics/t/status/more", None),
        ("/elsewhere", None),
    ],
)
def test_should_take_a_path_apart(path: str, address: Address | None) -> None:
    assert parse_address(path) == address


def test_should_read_json_and_yaml_alike() -> None:
    assert decode(b'{"a": ["2026-11-21T09:00:00Z"]}', "application/json").value == {"a": ["2026-11-21T09:00:00Z"]}
    assert decode(b"a: [2026-11-21T09:00:00Z, 1, true]", "application/yaml").value == {
        "a": ["2026-11-21T09:00:00Z", 1, True]
    }
    assert load_yaml("a: 1\n---\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


def test_should_name_duplicate_fields_by_their_paths() -> None:
    body = b'{"a": {"b": 1, "b": 2}, "l": [{"c": 1}, {"c": 1, "c": 2}], "a2": 1}'
    assert decode(body, "application/json").duplicates == ("a.b", "l[1].c")


@pytest.mark.parametrize(
    ("body", "media_type", "code"),
    [
        (b"{", "application/json", 400),
        (b'{"a": NaN}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"a: [", "application/yaml", 400),
        (b"[" * 100_000, "application/yaml", 400),
        (b"9" * 5_000, "application/yaml", 400),
        (b"a: 1\n---\nb: 1", "application/yaml", 400),
        (b"a=b", "application/x-www-form-urlencoded", 415),
        (b"other", "application/vnd.kubernetes.protobuf", 415),
        (b"k8s\x00\x0a\xff", "application/vnd.kubernetes.protobuf", 400),
    ],
)
def test_should_refuse_a_body_that_it_cannot_read(body: bytes, media_type: str, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        decode(body, media_type)
    assert refused.value.code == code


@given(st.binary(max_size=60))
def test_should_read_any_envelope_or_say_why_not(body: bytes) -> None:
    try:
        found = read_protobuf(b"k8s\x00" + body)
    except ValueError:
        return
    assert found is None or found["kind"] in ("Namespace", "Secret", "Service")


def _message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def test_should_read_a_namespace_from_its_envelope() -> None:
    label = _message(11, _message(1, b"team") + _message(2, b"data"))
    meta = _message(1, b"flights") + b"\x38\x05" + label
    type_meta = _message(1, b"v1") + _message(2, b"Namespace")
    envelope = b"k8s\x00" + _message(1, type_meta) + _message(2, _message(1, meta))
    assert read_protobuf(envelope) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "flights", "labels": {"team": "data"}},
    }
    pod = b"k8s\x00" + _message(1, _message(1, b"v1") + _message(2, b"Pod"))
    assert read_protobuf(pod) is None


def test_should_read_a_secret_from_its_envelope() -> None:
    data = _message(2, _message(1, b"key") + _message(2, b"\x00\xff"))
    written = _message(4, _message(1, b"plain") + _message(2, b"text"))
    secret = _message(1, _message(1, b"tls")) + data + _message(3, b"Opaque") + written + b"\x28\x01"
    type_meta = _message(1, b"v1") + _message(2, b"Secret")
    assert read_protobuf(b"k8s\x00" + _message(1, type_meta) + _message(2, secret)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tls"},
        "data": {"key": "AP8="},
        "stringData": {"plain": "text"},
        "type": "Opaque",
        "immutable": True,
    }


def _service(spec: bytes) -> bytes:
    type_meta = _message(1, b"v1") + _message(2, b"Service")
    return b"k8s\x00" + _message(1, type_meta) + _message(2, _message(1, _message(1, b"web")) + _message(2, spec))


def test_should_read_a_service_from_its_envelope() -> None:
    by_name = _message(1, b"a") + b"\x18\x50" + _message(4, b"\x08\x01" + _message(3, b"http"))
    by_number = _message(2, b"TCP") + b"\x18\xff\x7f" + _message(4, b"\x10\x51")
    selector = _message(2, _message(1, b"app") + _message(2, b"web"))
    found = read_protobuf(_service(_message(1, by_name) + _message(1, by_number) + selector + _message(3, b"None")))
    assert found is not None
    assert found["metadata"] == {"name": "web"}
    assert found["spec"] == {
        "ports": [
            {"name": "a", "protocol": "", "port": 80, "targetPort": "http", "nodePort": 0},
            {"name": "", "protocol": "TCP", "port": 16383, "targetPort": 81, "nodePort": 0},
        ],
        "selector": {"app": "web"},
        "clusterIP": "None",
    }
    with pytest.raises(ValueError, match="field 9 of a ServiceSpec is not read in protobuf here: send JSON"):
        read_protobuf(_service(_message(9, b"10.0.0.0/8")))


@pytest.mark.parametrize(
    ("accept", "form", "as_yaml"),
    [
        ("", Form.OBJECT, False),
        ("*/*", Form.OBJECT, False),
        ("application/vnd.kubernetes.protobuf,application/json", Form.OBJECT, False),
        ("application/yaml", Form.OBJECT, True),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Form.TABLE, False),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Form.OBJECT, False),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Form.PARTIAL, False),
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", Form.DISCOVERY, False),
    ],
)
def test_should_choose_the_first_form_that_it_writes(accept: str, form: Form, as_yaml: bool) -> None:
    representation = negotiate(accept)
    assert (representation.form, representation.as_yaml) == (form, as_yaml)


def test_should_refuse_a_client_that_reads_nothing_of_ours() -> None:
    with pytest.raises(StatusError) as refused:
        negotiate("application/vnd.kubernetes.protobuf")
    assert refused.value.code == 406
