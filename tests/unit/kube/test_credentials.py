from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.kube.credentials import load_credentials
from headrace.kube.errors import KubeConfigError
from tests.support.kubeconfig import write_kubeconfig


def write(path: Path, *, server: str = "https://api.example:6443", **user: Any) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "c", "user": "u", "namespace": "data"}},
        ],
        "current-context": "one",
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def test_should_read_a_plain_http_server_without_a_user(tmp_path: Path) -> None:
    found = await load_credentials(str(write_kubeconfig(tmp_path / "config", "http://127.0.0.1:9700", "data")))
    assert (found.server, found.namespace) == ("http://127.0.0.1:9700", "data")
    assert await found.authorization() is None
    assert (found.ca_file, found.client_certificate) == (None, None)


async def test_should_read_a_token_and_the_named_context(tmp_path: Path) -> None:
    found = await load_credentials(str(write(tmp_path / "config", token="secret")), "two")
    assert found.namespace == "data"
    assert await found.authorization() == "Bearer secret"
    assert found.insecure


async def test_should_use_the_current_context_and_its_default_namespace(tmp_path: Path) -> None:
    assert (await load_credentials(str(write(tmp_path / "config", token="t")))).namespace == "default"


async def test_should_follow_the_environment_when_no_path_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{write(tmp_path / 'config', server='http://env:1')}")
    assert (await load_credentials()).server == "http://env:1"


async def test_should_look_in_the_home_folder_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config", server="http://home:1")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (await load_credentials()).server == "http://home:1"


async def test_should_not_use_a_proxy_for_this_very_machine(tmp_path: Path) -> None:
    local = await load_credentials(str(write(tmp_path / "a", server="http://localhost:9700")))
    remote = await load_credentials(str(write(tmp_path / "b")))
    assert local.configuration.client_session_kwargs == {"trust_env": False}
    assert remote.configuration.client_session_kwargs == {"trust_env": True}


async def test_should_never_let_the_library_send_a_write_twice(tmp_path: Path) -> None:
    assert (await load_credentials(str(write(tmp_path / "config")))).configuration.retries is None


async def test_should_name_the_file_and_the_remedy_when_it_is_missing(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match=r"nowhere: no such file; give --kubeconfig PATH or set KUBECONFIG"):
        await load_credentials(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("text", ["", "[1, 2", "clusters: []", "a: b"])
async def test_should_say_so_when_the_file_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeConfigError, match="cannot be used"):
        await load_credentials(str(path))


async def test_should_say_so_when_the_context_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match="three"):
        await load_credentials(str(write(tmp_path / "config")), "three")


async def test_should_say_so_when_the_pods_account_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(KubeConfigError, match="Service token file does not exist"):
        await load_credentials()
