"""Where a broker's certificate comes from: files, or a Secret of type kubernetes.io/tls as cert-manager writes it.

Files are looked at again and again, by content: a mounted Secret changes by the swap of a symbolic link, which neither
the file's own time nor its inode need to show. A Secret is watched, that one alone; an API server that is away says
nothing about it, so the first reading waits.
"""

import asyncio
import errno
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.core.limits import TLS_FILE_BYTES_MAX, TLS_FILES_INTERVAL_MS
from headrace.core.resources.kubernetes_objects import Secret
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiError, NotFoundError
from headrace.kube.resource import SECRETS
from headrace.kube.watch import Changed, Listed, Removed, watch_one
from headrace_broker.coordination.patience import patiently
from headrace_broker.tls.material import Material, Pem, Unreadable


@dataclass(frozen=True, slots=True)
class Files:
    certificate: Path
    key: Path
    authority: Path | None

    async def read(self) -> Material | Unreadable:
        return await asyncio.to_thread(self._read)

    async def changes(self) -> AsyncGenerator[Material | Unreadable, None]:
        before: Material | Unreadable | None = None
        while True:
            await asyncio.sleep(TLS_FILES_INTERVAL_MS / 1000)
            now = await self.read()
            # Certificate and key are two files: what still changes is not looked at yet.
            if now == before:
                yield now
            before = now

    def _read(self) -> Material | Unreadable:
        try:
            return Material(
                Pem(f"certificate file {self.certificate}", _content(self.certificate)),
                Pem(f"key file {self.key}", _content(self.key)),
                Pem(f"CA file {self.authority}", _content(self.authority)) if self.authority else None,
            )
        except OSError as error:
            return Unreadable(f"{error.filename} cannot be read: {error.strerror}")


def _content(path: Path) -> bytes:
    """Raises OSError, also for a file that is too large for what it should be."""
    with path.open("rb") as file:
        content = file.read(TLS_FILE_BYTES_MAX + 1)
    if len(content) > TLS_FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


@dataclass(frozen=True, slots=True)
class WatchedSecret:
    client: KubeClient
    namespace: str
    name: str

    async def read(self) -> Material | Unreadable:
        try:
            get = partial(self.client.get, SECRETS, self.name, self.namespace)
            return self._material(await patiently(get, "to read the certificate"))
        except NotFoundError:
            return self._missing()
        except ApiError as error:
            return Unreadable(f"{self._label} cannot be read: {error.message}")

    async def changes(self) -> AsyncGenerator[Material | Unreadable, None]:
        async with aclosing(watch_one(self.client, SECRETS, self.name, self.namespace)) as events:
            async for event in events:
                match event:
                    case Listed((secret,)) | Changed(secret):
                        yield self._material(secret)
                    case Listed() | Removed():
                        yield self._missing()

    @property
    def _label(self) -> str:
        return f"Secret {self.namespace}/{self.name}"

    def _missing(self) -> Unreadable:
        return Unreadable(f"{self._label} is not there: make it with `kubectl create secret tls`, or by cert-manager")

    def _material(self, secret: Secret) -> Material | Unreadable:
        missing = [key for key in ("tls.crt", "tls.key") if not secret.data.get(key)]
        if missing:
            return Unreadable(f"{self._label} has no {' and no '.join(missing)}: it must be of type kubernetes.io/tls")
        certificate, key, authority = (
            Pem(f"{name} of {self._label}", secret.data.get(name, b"")) for name in ("tls.crt", "tls.key", "ca.crt")
        )
        return Material(certificate, key, authority if authority.content else None)
