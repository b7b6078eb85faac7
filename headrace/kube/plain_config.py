"""The two usual forms of credentials, read without the Kubernetes library: a pod's account, and a simple kubeconfig.

Loading the library takes a process 0.2 seconds and 20 MB, and brokers, which run in pods or beside the embedded API,
need nothing of what it is there for: exec plugins, cloud providers, merged files, certificates inside the file. What
is not simple is None here, mistakes too: then the library reads it, and it is the library that says what is wrong.
Called by `credentials`. Raises OSError and YAMLError.
"""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from headrace.core.slotted import dataclass

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CLUSTER_MEMBERS: Final = frozenset({"server", "certificate-authority"})
_USER_MEMBERS: Final = frozenset({"token", "tokenFile", "client-certificate", "client-key"})


@dataclass(frozen=True, slots=True)
class PlainConfig:
    server: str
    namespace: str
    ca_file: str | None = None
    client_certificate: tuple[str, str] | None = None
    """Paths of the certificate and its key."""
    token: str | None = None
    token_file: str | None = None

    def authorization(self) -> str | None:
        """Fresh: whoever rotates the token replaces the file. Raises OSError."""
        token = _text_of(Path(self.token_file)) if self.token_file else self.token
        return f"Bearer {token}" if token else None


def read_pod(environment: Mapping[str, str], account: Path = _ACCOUNT) -> PlainConfig | None:
    host, port = (environment.get(f"KUBERNETES_SERVICE_{what}", "") for what in ("HOST", "PORT"))
    token, authority, namespace = (account / name for name in ("token", "ca.crt", "namespace"))
    if not (host and port and token.is_file() and authority.is_file()):
        return None
    return PlainConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=_text_of(namespace) if namespace.is_file() else "default",
        ca_file=str(authority),
        token_file=str(token),
    )


def read_kubeconfig(path: str, context: str | None) -> PlainConfig | None:
    if os.pathsep in path:
        return None
    file = Path(path).expanduser()
    document = yaml.safe_load(file.read_bytes())
    try:
        chosen = _named(document["contexts"], context or document["current-context"])["context"]
        cluster = _named(document["clusters"], chosen["cluster"])["cluster"]
        user = _named(document["users"], chosen["user"])["user"] or {}
        return _plain(file.parent, cluster, user, str(chosen.get("namespace") or "default"))
    except (AttributeError, KeyError, TypeError, StopIteration):
        return None


def _plain(folder: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], namespace: str) -> PlainConfig | None:
    certificate, key = user.get("client-certificate"), user.get("client-key")
    if cluster.keys() - _CLUSTER_MEMBERS or user.keys() - _USER_MEMBERS or (certificate is None) != (key is None):
        return None
    authority, token_file = cluster.get("certificate-authority"), user.get("tokenFile")
    return PlainConfig(
        server=cluster["server"].rstrip("/"),
        namespace=namespace,
        ca_file=str(folder / authority) if authority else None,
        client_certificate=(str(folder / certificate), str(folder / key)) if certificate and key else None,
        token=user.get("token"),
        token_file=str(folder / token_file) if token_file else None,
    )


def _named(items: list[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(item for item in items if item["name"] == name)


def _text_of(file: Path) -> str:
    """Raises OSError that names the file, where it is not text too: a file that is replaced later may be."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, "is not UTF-8 text", str(file)) from error
