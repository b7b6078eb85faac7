import pytest

from headrace.core.resources.kubernetes_objects import Secret
from headrace.core.resources.metadata import InvalidResourceError


def test_should_hold_the_bytes_and_not_show_them() -> None:
    secret = Secret.parse({"metadata": {"name": "tls", "namespace": "a"}, "data": {"tls.key": "c2VjcmV0"}})
    assert (secret.metadata.name, dict(secret.data)) == ("tls", {"tls.key": b"secret"})
    assert "secret'" not in repr(secret)


def test_should_be_empty_when_there_is_no_data() -> None:
    assert Secret.parse({"metadata": {"name": "tls"}}).data == {}


def test_should_refuse_what_is_no_base64_without_showing_it() -> None:
    with pytest.raises(InvalidResourceError, match=r"^Secret tls: data must be base64$"):
        Secret.parse({"metadata": {"name": "tls"}, "data": {"tls.key": "not base64"}})
