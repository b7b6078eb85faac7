"""Where the API server is and who we are there: read once from a kubeconfig, or from the pod that we run in.

Order: the path that is given, `KUBECONFIG`, `~/.kube/config`, the pod's service account. Plain `http` servers (the
embedded API) are fine and need no user; a token goes to such a server on this machine alone. A service account's token
is read again as it is rotated. What `plain_config` cannot read is read by the Kubernetes library, which is loaded then
and not before.
"""

import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from headrace.core.browsers import is_loopback_name
from headrace.kube.errors import KubeConfigError, NoKubeConfigError
from headrace.kube.plain_config import PlainConfig, read_kubeconfig, read_pod


@dataclass(frozen=True, slots=True)
class Credentials:
    server: str
    namespace: str
    """Of the context, or of the pod; else `default`."""
    authorization: Callable[[], Awaitable[str | None]]
    """The value of the Authorization header, fresh. Raises OSError."""
    ca_file: str | None = None
    client_certificate: tuple[str, str] | None = None
    """Paths of the certificate and its key."""
    insecure: bool = False
    proxy: str | None = None
    tls_server_name: str | None = None

    @property
    def detour(self) -> str | None:
        """What only `KubeClient` itself can do on the way to this server; None: anybody can reach it."""
        if self.proxy:
            return f"proxy-url {self.proxy}"
        if self.tls_server_name:
            return f"tls-server-name {self.tls_server_name}"
        return None

    @property
    def takes_proxy_of_environment(self) -> bool:
        """A proxy from the environment cannot reach a server on this very machine."""
        return not is_loopback_name(urlsplit(self.server).hostname or "")

    @property
    def keeps_secrets(self) -> bool:
        """Whether nobody on the way to the server can read what is sent."""
        parts = urlsplit(self.server)
        return parts.scheme == "https" or is_loopback_name(parts.hostname or "")

    def ssl_context(self) -> ssl.SSLContext | None:
        """None for plain HTTP. Raises KubeConfigError."""
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
    """Raises KubeConfigError with the remedy where nothing usable is found."""
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
    except UnicodeDecodeError as error:  # The library's: it reads the files that a kubeconfig names, as `tokenFile`.
        raise KubeConfigError(f"kubeconfig {path} cannot be used: a file that it names is not UTF-8 text") from error


def _is_there(path: str) -> bool:
    return any(Path(part).expanduser().is_file() for part in path.split(os.pathsep))


def _of_plain(plain: PlainConfig) -> Credentials:
    async def authorization() -> str | None:
        return plain.authorization()

    return Credentials(plain.server, plain.namespace, authorization, plain.ca_file, plain.client_certificate)


async def _by_library(path: str | None, context: str | None) -> Credentials:
    """`path` None: the pod. Raises KubeConfigError, YAMLError, OSError."""
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
