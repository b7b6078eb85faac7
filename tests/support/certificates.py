"""Certificates for tests, and a directory that changes as a mounted Secret does."""

import os
import ssl
from collections.abc import Mapping
from datetime import datetime
from itertools import count
from pathlib import Path

import trustme

from headrace.http2.origin import trusting_bundle


class Authority:
    """A CA of its own, and what it issues, under the names that a Secret of type kubernetes.io/tls has."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    @property
    def pem(self) -> bytes:
        return self._ca.cert_pem.bytes()

    @property
    def trust(self) -> ssl.SSLContext:
        return trusting_bundle(self.pem, "the test's authority")

    def secret(
        self, *names: str, key_type: trustme.KeyType = trustme.KeyType.ECDSA, expires: str | None = None
    ) -> dict[str, bytes]:
        """For these names, else for loopback; `expires` is a date as 2020-01-31."""
        not_after = datetime.fromisoformat(f"{expires}T00:00:00+00:00") if expires else None
        issued = self._ca.issue_cert(*(names or ("localhost", "127.0.0.1")), key_type=key_type, not_after=not_after)
        chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        return {"tls.crt": chain, "tls.key": issued.private_key_pem.bytes(), "ca.crt": self.pem}


class Mount:
    """Files as a kubelet mounts a Secret: links through `..data`, which a change replaces at one stroke."""

    def __init__(self, directory: Path, files: Mapping[str, bytes]) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._versions = count()
        self.put(files)
        for name in files:
            (directory / name).symlink_to(Path("..data") / name)

    def path(self, name: str) -> Path:
        return self._directory / name

    def put(self, files: Mapping[str, bytes]) -> None:
        version = self._directory / f"..{next(self._versions)}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_bytes(content)
        fresh = self._directory / "..fresh"
        fresh.symlink_to(version.name)
        os.replace(fresh, self._directory / "..data")

    @property
    def options(self) -> list[str]:
        """Of a broker, or of `headrace dev`."""
        flags = {"--tls-cert-file": "tls.crt", "--tls-key-file": "tls.key", "--tls-ca-file": "ca.crt"}
        return [part for flag, name in flags.items() for part in (flag, str(self.path(name)))]
