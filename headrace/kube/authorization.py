"""Logging in to the API server from outside the Kubernetes client: the Authorization header, for other transports.

A token may be short-lived (a cloud's exec plugin, a service account's), and a `consume --follow` runs for days: the
header is read anew from its source every KUBE_AUTHORIZATION_AGE_MS_MAX. Used from several threads.
"""

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from headrace.core.limits import KUBE_AUTHORIZATION_AGE_MS_MAX
from headrace.kube.credentials import load_credentials
from headrace.kube.errors import KubeConfigError

_HEADER = "authorization"


class Authorization(Mapping[str, str]):
    """The headers that say who we are: one, or none where the credentials are not in a header."""

    def __init__(
        self,
        kubeconfig: str | None,
        context: str | None,
        value: str | None,
        *,
        age_ms_max: int = KUBE_AUTHORIZATION_AGE_MS_MAX,
    ) -> None:
        """`value` is what was just read from the kubeconfig."""
        self._age_ms_max = age_ms_max
        self._source = (kubeconfig, context)
        self._value = value
        self._read_at = time.monotonic()
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> str:
        """Raises KubeConfigError where the kubeconfig cannot be read any more."""
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
                # In a thread of its own: the caller's may run an event loop.
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
