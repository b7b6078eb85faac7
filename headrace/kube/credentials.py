"""The API server's address and the credentials for it, read from a kubeconfig or from the pod that we run in.

The order is: the path that is given, `KUBECONFIG`, `~/.kube/config`, the pod's service account. Plain `http` servers
(the embedded API) are fine and need no user; a token goes to such a server on this machine alone. A service account's
token is read again as it is rotated.

A pod's account and a simple kubeconfig are read here, without the Kubernetes library, whose loading takes 0.2 seconds
and 20 MB. The library is loaded, then and not before, for configurations that are not simple: exec plugins, cloud
providers, merged files, certificates inside the file, and mistakes, which it explains.

`Authorization` is the header for other transports than the Kubernetes client. A token may be short-lived and a
`consume --follow` runs for days, so the header is read anew every KUBE_AUTHORIZATION_AGE_MS_MAX. Threads may share it.
"""

import asyncio
import errno
import os
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from headrace.core.browsers import is_loopback_name
from headrace.kube.errors import KubeConfigError, NoKubeConfigError

KUBE_AUTHORIZATION_AGE_MS_MAX = 60_000
"""The time after which an Authorization header is read anew: tokens are short-lived."""


_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CLUSTER_MEMBERS: Final = frozenset({"server", "certificate-authority"})
_USER_MEMBERS: Final = frozenset({"token", "tokenFile", "client-certificate", "client-key"})
_HEADER = "authorization"


@dataclass(frozen=True, slots=True)
class PlainConfig:
    server: str
    namespace: str
    ca_file: str | None = None
    client_certificate: tuple[str, str] | None = None
    """The paths of the certificate and its key."""
    token: str | None = None
    token_file: str | None = None

    def authorization(self) -> str | None:
        """Return a fresh value: a program that rotates the token replaces the file. Raises OSError."""
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
    """Return the text of a file. Raises an OSError that names the file, also where it is no text: such a file may be
    replaced later."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, "is not UTF-8 text", str(file)) from error


@dataclass(frozen=True, slots=True)
class Credentials:
    server: str
    namespace: str
    """The namespace of the context, or of the pod; else `default`."""
    authorization: Callable[[], Awaitable[str | None]]
    """A function that returns the value of the Authorization header, fresh. Raises OSError."""
    ca_file: str | None = None
    client_certificate: tuple[str, str] | None = None
    """The paths of the certificate and its key."""
    insecure: bool = False
    proxy: str | None = None
    tls_server_name: str | None = None

    @property
    def detour(self) -> str | None:
        """Return what only `KubeClient` itself can do on the way to this server; None: any client can reach it."""
        if self.proxy:
            return f"proxy-url {self.proxy}"
        if self.tls_server_name:
            return f"tls-server-name {self.tls_server_name}"
        return None

    @property
    def takes_proxy_of_environment(self) -> bool:
        """Return whether a proxy from the environment may be used: it cannot reach a server on this very machine."""
        return not is_loopback_name(urlsplit(self.server).hostname or "")

    @property
    def keeps_secrets(self) -> bool:
        """Return whether nobody on the way to the server can read what is sent."""
        parts = urlsplit(self.server)
        return parts.scheme == "https" or is_loopback_name(parts.hostname or "")

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, None for plain HTTP. Raises KubeConfigError."""
        if not self.server.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.client_certificate is not None:
                context.load_cert_chain(*self.client_certificate)
        except OSError as error:
            raise KubeConfigError(f"the certificates of the kubeconfig cannot be used: {error}") from error
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


async def load_credentials(kubeconfig: str | None = None, context: str | None = None) -> Credentials:
    """Return the credentials. Raises KubeConfigError with the remedy where nothing usable is found."""
    path = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    from_file = _is_there(path)
    if not from_file and (kubeconfig is not None or "KUBERNETES_SERVICE_HOST" not in os.environ):
        raise NoKubeConfigError(
            f"kubeconfig {path}: no such file; give --kubeconfig PATH or set KUBECONFIG, or start `headrace dev`"
        )
    try:
        plain = read_kubeconfig(path, context) if from_file else read_pod(os.environ)
        return _of_plain(plain) if plain else await _by_library(path if from_file else None, context)
    except (yaml.YAMLError, OSError) as error:
        raise KubeConfigError(f"kubeconfig {path} cannot be used: {error}") from error
    except (
        UnicodeDecodeError
    ) as error:  # The library reads it: it opens the files that a kubeconfig names, as `tokenFile`.
        raise KubeConfigError(f"kubeconfig {path} cannot be used: a file that it names is not UTF-8 text") from error


def _is_there(path: str) -> bool:
    return any(Path(part).expanduser().is_file() for part in path.split(os.pathsep))


def _of_plain(plain: PlainConfig) -> Credentials:
    async def authorization() -> str | None:
        return plain.authorization()

    return Credentials(plain.server, plain.namespace, authorization, plain.ca_file, plain.client_certificate)


async def _by_library(path: str | None, context: str | None) -> Credentials:
    """Load the credentials with the library; `path` None: the pod. Raises KubeConfigError, YAMLError, OSError."""
    from kubernetes.aio import config
    from kubernetes.aio.client import Configuration

    configuration: Any = Configuration()
    load: Any = config.load_kube_config if path else config.load_incluster_config
    namespace = "default"
    try:
        if path:
            loader = await load(
                config_file=path, context=context, client_configuration=configuration, persist_config=False
            )
            namespace = str(loader.current_context["context"].get("namespace") or namespace)
        else:
            load(configuration)
    except (config.ConfigException, AttributeError, TypeError) as error:
        raise KubeConfigError(f"kubeconfig {path} cannot be used: {error}") from error
    certificate = (configuration.cert_file, configuration.key_file) if configuration.cert_file else None
    return Credentials(
        server=configuration.host,
        namespace=namespace,
        authorization=lambda: configuration.get_api_key_with_prefix("BearerToken"),
        ca_file=configuration.ssl_ca_cert or None,
        client_certificate=certificate,
        insecure=not configuration.verify_ssl,
        proxy=configuration.proxy or None,
        tls_server_name=configuration.tls_server_name or None,
    )


class Authorization(Mapping[str, str]):
    """The headers that identify us: one, or none where the credentials are not in a header."""

    def __init__(
        self,
        kubeconfig: str | None,
        context: str | None,
        value: str | None,
        *,
        age_ms_max: int = KUBE_AUTHORIZATION_AGE_MS_MAX,
    ) -> None:
        """Take `value`, which was just read from the kubeconfig."""
        self._age_ms_max = age_ms_max
        self._source = (kubeconfig, context)
        self._value = value
        self._read_at = time.monotonic()
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> str:
        """Return the header. Raises KubeConfigError where the kubeconfig cannot be read any more."""
        value = self._fresh() if name == _HEADER else None
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter((_HEADER,) if self._value is not None else ())

    def __len__(self) -> int:
        return 0 if self._value is None else 1

    def _fresh(self) -> str | None:
        with self._lock:
            age_ms = (time.monotonic() - self._read_at) * 1000
            if self._value is not None and age_ms >= self._age_ms_max:
                # The library runs in a thread of its own: the caller's may run an event loop.
                with ThreadPoolExecutor(1) as thread:
                    self._value = thread.submit(asyncio.run, self._read()).result() or self._value
                self._read_at = time.monotonic()
            return self._value

    async def _read(self) -> str | None:
        credentials = await load_credentials(*self._source)
        try:
            return await credentials.authorization()
        except OSError as error:
            raise KubeConfigError(f"the token of the kubeconfig cannot be read: {error}") from error
