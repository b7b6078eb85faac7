"""The Authorization header, for whoever talks to the API server without the Kubernetes client."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from headrace.kube.client import KubeClient
from headrace.kube.credentials import Authorization, load_credentials, read_kubeconfig, read_pod
from headrace.kube.errors import ApiUnavailableError, KubeConfigError, NoKubeConfigError
from headrace.kube.resource import TOPICS
from tests.support.kubeconfig import write_kubeconfig


def write(path: Path, *, server: str = "https://api.example:6443", insecure: bool = True, **user: Any) -> Path:
    cluster = {"server": server, **({"insecure-skip-tls-verify": True} if insecure else {})}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
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
    assert not local.takes_proxy_of_environment
    assert remote.takes_proxy_of_environment


async def test_should_name_the_file_and_the_remedy_when_it_is_missing(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match=r"nowhere: no such file; give --kubeconfig PATH or set KUBECONFIG"):
        await load_credentials(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("text", ["", "[1, 2", "clusters: []", "a: b"])
async def test_should_say_so_when_the_file_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeConfigError, match="cannot be used"):
        await load_credentials(str(path))


@pytest.mark.parametrize(
    "wrong", [{"clusters": [{"name": "c", "cluster": None}]}, {"users": [{"name": "u", "user": "me"}]}]
)
async def test_should_say_so_when_a_part_is_of_another_kind(tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = write(tmp_path / "config")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **wrong}))
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


def test_should_read_a_pods_account_and_its_rotated_token(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    (tmp_path / "ca.crt").write_text("certificate")
    assert read_pod(environment, tmp_path) is None
    (tmp_path / "token").write_text("first\n")
    found = read_pod(environment, tmp_path)
    assert found is not None
    assert (found.server, found.namespace, found.ca_file) == ("https://[fd00::1]:443", "default", f"{tmp_path}/ca.crt")
    assert found.authorization() == "Bearer first"
    (tmp_path / "token").write_text("second")
    (tmp_path / "namespace").write_text("data\n")
    assert found.authorization() == "Bearer second"
    again = read_pod({**environment, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
    assert again is not None
    assert (again.server, again.namespace) == ("https://10.0.0.1:443", "data")


@pytest.mark.parametrize("name", ["token", "namespace"])
def test_should_name_the_file_of_a_pods_account_that_is_not_text(tmp_path: Path, name: str) -> None:
    for each in ("ca.crt", "token", "namespace"):
        (tmp_path / each).write_text("text")
    (tmp_path / name).write_bytes(b"\xff\xfe")
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    def authorization() -> str | None:
        found = read_pod(environment, tmp_path)
        return None if found is None else found.authorization()

    with pytest.raises(OSError, match=rf"is not UTF-8 text: '{tmp_path}/{name}'"):
        authorization()


async def test_should_refuse_with_the_file_when_a_token_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    path = write(tmp_path / "config", server="http://127.0.0.1:1", insecure=False, tokenFile="token")
    async with KubeClient(await load_credentials(str(path))) as client:
        with pytest.raises(ApiUnavailableError, match=rf"is not UTF-8 text: '{tmp_path}/token'"):
            await client.list(TOPICS)


async def test_should_send_no_token_in_the_clear(tmp_path: Path) -> None:
    path = write(tmp_path / "config", server="http://api.example:8080", insecure=False, token="secret")
    async with KubeClient(await load_credentials(str(path))) as client:
        with pytest.raises(KubeConfigError, match=r"http://api\.example:8080 is plain http"):
            await client.list(TOPICS)


async def test_should_say_so_when_a_token_that_the_library_reads_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(KubeConfigError, match="cannot be used: a file that it names is not UTF-8 text"):
        await load_credentials(str(write(tmp_path / "config", tokenFile="token")))


async def test_should_find_what_a_kubeconfig_names_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path / "config", insecure=False, tokenFile="token")
    (tmp_path / "token").write_text("t")
    found = await load_credentials(str(path))
    assert await found.authorization() == "Bearer t"
    certificate = {"client-certificate": "me.crt", "client-key": "/keys/me.key"}
    plain = read_kubeconfig(str(write(tmp_path / "config", insecure=False, **certificate)), None)
    assert plain is not None
    assert plain.client_certificate == (str(tmp_path / "me.crt"), "/keys/me.key")


@pytest.mark.parametrize(
    "user",
    [{"exec": {"command": "x"}}, {"auth-provider": {"name": "x"}}, {"client-key-data": "x"}, {"client-key": "x"}],
)
def test_should_leave_to_the_library_what_is_not_simple(tmp_path: Path, user: dict[str, Any]) -> None:
    assert read_kubeconfig(str(write(tmp_path / "config", insecure=False, **user)), None) is None
    assert read_kubeconfig(f"{write(tmp_path / 'config')}:{tmp_path / 'other'}", None) is None
    assert read_kubeconfig(str(write(tmp_path / "config")), None) is None


def _write(path: Path, cluster: Mapping[str, object], user: Mapping[str, str] | None = None) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443", **cluster}}],
        "users": [{"name": "u", "user": dict(user or {})}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_should_read_a_token_anew_when_it_is_old(tmp_path: Path) -> None:
    path = _write(tmp_path / "config", {}, {"token": "second"})
    assert dict(Authorization(path, None, "Bearer first")) == {"authorization": "Bearer first"}
    headers = Authorization(path, None, "Bearer first", age_ms_max=0)
    assert dict(headers) == {"authorization": "Bearer second"}
    Path(path).unlink()
    with pytest.raises(NoKubeConfigError, match="no such file"):
        dict(headers)


@pytest.mark.parametrize("token", [None, b"\xff\xfe"])
def test_should_name_the_token_file_that_cannot_be_read_any_more(tmp_path: Path, token: bytes | None) -> None:
    headers = Authorization(_write(tmp_path / "config", {}, {"tokenFile": "token"}), None, "Bearer first", age_ms_max=0)
    if token is not None:
        (tmp_path / "token").write_bytes(token)
    with pytest.raises(KubeConfigError, match=f"the token of the kubeconfig cannot be read: .*{tmp_path}/token"):
        dict(headers)


async def test_should_read_a_token_anew_beside_a_running_event_loop(tmp_path: Path) -> None:
    path = _write(tmp_path / "config", {}, {"token": "second"})
    assert Authorization(path, None, "Bearer first", age_ms_max=0)["authorization"] == "Bearer second"


def test_should_send_nothing_where_a_certificate_says_who_we_are(tmp_path: Path) -> None:
    headers = Authorization(str(tmp_path / "never read"), None, None)
    assert (len(headers), dict(headers)) == (0, {})


async def test_should_trust_and_show_what_the_kubeconfig_says(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own = authority.issue_cert("me@example")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "me.pem"))
    me = {"client-certificate": str(tmp_path / "me.pem"), "client-key": str(tmp_path / "me.pem")}
    path = _write(tmp_path / "config", {"certificate-authority": str(tmp_path / "ca.pem")}, me)
    context = (await load_credentials(path)).ssl_context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1

    context = (await load_credentials(_write(tmp_path / "any", {"insecure-skip-tls-verify": True}))).ssl_context()
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    plain = await load_credentials(_write(tmp_path / "plain", {"server": "http://127.0.0.1:9700"}))
    assert plain.ssl_context() is None


async def test_should_say_which_certificates_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    path = _write(tmp_path / "config", {"certificate-authority": str(tmp_path / "ca.pem")})
    broken = await load_credentials(path)
    with pytest.raises(KubeConfigError, match="the certificates of the kubeconfig cannot be used"):
        broken.ssl_context()
    with pytest.raises(KubeConfigError, match="the certificates of the kubeconfig cannot be used"):
        await KubeClient.connect(kubeconfig=path)


@pytest.mark.parametrize("member", ["proxy-url", "tls-server-name"])
async def test_should_know_what_only_the_kubernetes_client_can_do(tmp_path: Path, member: str) -> None:
    assert (await load_credentials(_write(tmp_path / "plain", {}))).detour is None
    found = await load_credentials(_write(tmp_path / "config", {member: "http://proxy.example"}))
    assert found.detour == f"{member} http://proxy.example"
