"""The Authorization header, for whoever talks to the API server without the Kubernetes client."""

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme
import yaml

from headrace.kube.client import KubeClient
from headrace.kube.credentials import Authorization, load_credentials
from headrace.kube.errors import KubeConfigError, NoKubeConfigError


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
