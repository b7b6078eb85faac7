"""Secrets: what is stored of what is written, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.api_objects import secret
from tests.support.api_server import ApiServer, Kubectl, Space
from tests.support.tools import kubectl_path

_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


async def test_should_keep_bytes_in_base64_and_put_plain_strings_among_them(space: Space) -> None:
    written = secret(data={"a": "eA==", "b": "WQ=\n="}, stringData={"b": "y", "c": "ü"})
    created = await space.create("secrets", written)
    assert created["data"] == {"a": "eA==", "b": "eQ==", "c": "w7w="}
    assert created["type"] == "Opaque"
    assert not {"stringData", "immutable"} & created.keys()
    assert "generation" not in created["metadata"]

    changed = await space.api.merge(space.path("secrets", "tls"), {"stringData": {"c": None, "d": "z"}})
    assert changed.body["data"] == {"a": "eA==", "b": "eQ==", "c": "w7w=", "d": "eg=="}
    replaced = await space.api.request("PUT", space.path("secrets", "tls"), secret(data={"b": None}))
    assert (replaced.status, replaced.body["data"]) == (200, {"b": ""})


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"data": {"a": "x y$"}}, "illegal base64 data at input byte 1"),
        ({"data": {"a": "abc"}}, "illegal base64 data at input byte 0"),
        ({"data": {"a": "YQ==YQ=="}}, "illegal base64 data at input byte 4"),
        ({"data": {"a": "YQ="}}, "illegal base64 data at input byte 3"),
        ({"data": {"a": "YQ=a"}}, "illegal base64 data at input byte 2"),
        ({"data": {"a": "YWI=a"}}, "illegal base64 data at input byte 4"),
        ({"data": {"a": "Y==="}}, "illegal base64 data at input byte 1"),
        ({"data": {"a": 1}}, "json: cannot unmarshal number into Go struct field Secret.data of type []uint8"),
        ({"data": ["a"]}, "json: cannot unmarshal array into Go struct field Secret.data of type map[string][]uint8"),
        (
            {"stringData": {"a": True}},
            "json: cannot unmarshal bool into Go struct field Secret.stringData of type string",
        ),
        ({"type": 1}, "json: cannot unmarshal number into Go struct field Secret.type of type v1.SecretType"),
        ({"immutable": "yes"}, "json: cannot unmarshal string into Go struct field Secret.immutable of type bool"),
    ],
)
async def test_should_refuse_what_it_cannot_read(space: Space, members: dict[str, Any], why: str) -> None:
    answer = await space.api.request("POST", space.path("secrets"), secret(**members))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == f'Secret in version "v1" cannot be handled as a Secret: {why}'


async def test_should_refuse_bad_keys_and_too_much_data(space: Space) -> None:
    keys = {"": _KEY_RULE, "a b": _KEY_RULE, ".": "must not be '.'", "..": "must not be '..'"}
    keys |= {"..x": "must not start with '..'", "a" * 254: "must be no more than 253 characters"}
    answer = await space.api.request("POST", space.path("secrets"), secret(data=dict.fromkeys(keys, "eA==")))
    assert answer.causes == {
        (f"data[{key}]", "FieldValueInvalid", f'Invalid value: "{key}": {rule}') for key, rule in keys.items()
    }
    answer = await space.api.request("POST", space.path("secrets"), secret(stringData={"a": "x" * ((1 << 20) + 1)}))
    assert answer.message == 'Secret "tls" is invalid: data: Too long: may not be more than 1048576 bytes'


@pytest.mark.parametrize(
    ("secret_type", "data", "wanted"),
    [
        ("kubernetes.io/tls", {}, {"data[tls.crt]", "data[tls.key]"}),
        ("kubernetes.io/tls", {"tls.crt": "eA=="}, {"data[tls.key]"}),
        ("kubernetes.io/basic-auth", {}, {"data[username]", "data[password]"}),
        ("kubernetes.io/ssh-auth", {}, {"data[ssh-privatekey]"}),
        ("kubernetes.io/dockerconfigjson", {}, {"data[.dockerconfigjson]"}),
        ("kubernetes.io/service-account-token", {}, {"metadata.annotations[kubernetes.io/service-account.name]"}),
    ],
)
async def test_should_want_the_keys_of_its_type(
    space: Space, secret_type: str, data: dict[str, str], wanted: set[str]
) -> None:
    answer = await space.api.request("POST", space.path("secrets"), secret(type=secret_type, data=data))
    assert answer.causes == {(field, "FieldValueRequired", "Required value") for field in wanted}


async def test_should_want_json_where_the_type_says_so(space: Space) -> None:
    config = secret(type="kubernetes.io/dockercfg", data={".dockercfg": "ew=="})
    answer = await space.api.request("POST", space.path("secrets"), config)
    rule = 'Invalid value: "<secret contents redacted>": unexpected end of JSON input'
    assert answer.causes == {("data[.dockercfg]", "FieldValueInvalid", rule)}


async def test_should_let_nobody_change_a_type_or_what_is_immutable(space: Space) -> None:
    await space.create("secrets", secret(data={"a": "eA=="}, immutable=True))
    answer = await space.api.merge(
        space.path("secrets", "tls"), {"type": "x", "immutable": None, "data": {"b": "eA=="}}
    )
    assert answer.message == (
        'Secret "tls" is invalid: [type: Invalid value: "x": field is immutable, '
        "immutable: Forbidden: field is immutable when `immutable` is set, "
        "data: Forbidden: field is immutable when `immutable` is set]"
    )


async def test_should_drop_members_that_it_does_not_know(space: Space) -> None:
    answer = await space.api.request("POST", space.path("secrets"), secret(datas={}, also=1))
    assert answer.warnings == ('299 - "unknown field \\"datas\\""', '299 - "unknown field \\"also\\""')
    assert not {"datas", "also"} & answer.body.keys()


async def test_should_select_secrets_by_type(space: Space) -> None:
    for name, secret_type in (("one", "example.com/one"), ("two", "example.com/two")):
        await space.create("secrets", secret(name, type=secret_type))
    answer = await space.api.get(space.path("secrets"), {"fieldSelector": "type=example.com/two"})
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["two"]


def test_should_be_made_and_shown_by_kubectl(api_server: ApiServer, space: Space, tmp_path: Path) -> None:
    kubectl = Kubectl(kubectl_path(), api_server.kubeconfig, space.name, tmp_path / "cache")
    said = kubectl.ok("create", "secret", "generic", "login", "--from-literal=user=me", "--from-literal=word=open")
    assert said == "secret/login created\n"
    assert [line.split()[:3] for line in kubectl.ok("get", "secrets").splitlines()] == [
        ["NAME", "TYPE", "DATA"],
        ["login", "Opaque", "2"],
    ]
    assert kubectl.ok("get", "secret", "login", "-o", "jsonpath={.data.word}") == "b3Blbg=="
    assert "word:  4 bytes" in kubectl.ok("describe", "secret", "login")
