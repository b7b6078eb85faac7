"""Where the API server is and who we are there: read once from a kubeconfig, or from the pod that we run in.

Order: the path that is given, `KUBECONFIG`, `~/.kube/config`, the pod's service account. Plain `http` servers (the
embedded API) are fine and need no user. A service account's token is read again as it is rotated.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config.kube_config import ENV_KUBECONFIG_PATH_SEPARATOR

from headrace.kube.errors import KubeConfigError, NoKubeConfigError

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Credentials:
    """`configuration` is the Kubernetes client's own; the properties are for whoever else must log in (kopf)."""

    configuration: Any
    namespace: str
    """Of the context, or of the pod; else `default`."""

    @property
    def server(self) -> str:
        return str(self.configuration.host)

    @property
    def ca_file(self) -> str | None:
        return self.configuration.ssl_ca_cert or None

    @property
    def client_certificate(self) -> tuple[str, str] | None:
        """Paths of the certificate and its key."""
        if not self.configuration.cert_file:
            return None
        return self.configuration.cert_file, self.configuration.key_file

    @property
    def insecure(self) -> bool:
        return not self.configuration.verify_ssl

    @property
    def detour(self) -> str | None:
        """What only the Kubernetes client itself can do on the way to this server; None: anybody can reach it."""
        if self.configuration.proxy:
            return f"proxy-url {self.configuration.proxy}"
        if self.configuration.tls_server_name:
            return f"tls-server-name {self.configuration.tls_server_name}"
        return None

    def ssl_context(self) -> ssl.SSLContext | None:
        """For other transports to the same server; None for plain HTTP. Raises KubeConfigError."""
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

    async def authorization(self) -> str | None:
        """The value of the Authorization header, fresh."""
        key: str | None = await self.configuration.get_api_key_with_prefix("BearerToken")
        return key


async def load_credentials(kubeconfig: str | None = None, context: str | None = None) -> Credentials:
    """Raises KubeConfigError with the remedy where nothing usable is found."""
    configuration = Configuration()
    path = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    try:
        if _is_there(path):
            namespace = await _from_file(configuration, path, context)
        elif kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            namespace = _from_pod(configuration)
        else:
            raise NoKubeConfigError(
                f"kubeconfig {path}: no such file; give --kubeconfig PATH or set KUBECONFIG, or start `headrace dev`"
            )
    except (kube_config.ConfigException, yaml.YAMLError, OSError, TypeError) as error:
        raise KubeConfigError(f"kubeconfig {path} cannot be used: {error}") from error
    # A write must reach the server once: the library's own retries stay off, callers decide.
    configuration.retries = None
    # A proxy from the environment cannot reach a server on this very machine.
    configuration.client_session_kwargs = {"trust_env": urlsplit(configuration.host).hostname not in _LOOPBACK}
    return Credentials(configuration, namespace)


def _is_there(path: str) -> bool:
    return any(Path(part).expanduser().is_file() for part in path.split(ENV_KUBECONFIG_PATH_SEPARATOR))


async def _from_file(configuration: Any, path: str, context: str | None) -> str:
    load: Any = kube_config.load_kube_config
    loader = await load(config_file=path, context=context, client_configuration=configuration, persist_config=False)
    return str(loader.current_context["context"].get("namespace") or "default")


def _from_pod(configuration: Any) -> str:
    load: Any = kube_config.load_incluster_config
    load(configuration)
    return _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.is_file() else "default"
