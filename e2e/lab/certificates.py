"""A certificate authority for one run of the lab, made by the `openssl` program.

Lives as long as its folder; its keys guard a server on loopback for a few minutes and nothing else.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.lab.errors import LabError

_DAYS = "30"


@dataclass(frozen=True, slots=True)
class KeyPair:
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs with `own`. Make it with `create`."""

    folder: Path
    own: KeyPair

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        """Raises LabError when there is no openssl."""
        if shutil.which("openssl") is None:
            raise LabError("the lab makes its certificates with openssl, which is not on the PATH: install openssl")
        folder.mkdir(parents=True, exist_ok=True)
        own = KeyPair(folder / "ca.crt", folder / "ca.key")
        _openssl(
            *("req", "-x509", *_NEW_KEY, "-keyout", own.key, "-out", own.certificate, "-days", _DAYS),
            *("-subj", "/CN=headrace-lab", "-addext", "basicConstraints=critical,CA:TRUE"),
        )
        return cls(folder, own)

    def issue(self, name: str, *, common_name: str, group: str, subject_names: str = "") -> KeyPair:
        """`group` is what Kubernetes reads from O=; `subject_names` as openssl writes them (`IP:...,DNS:...`)."""
        pair = KeyPair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        names = f"subjectAltName={subject_names}\n" if subject_names else ""
        extensions.write_text(f"{names}extendedKeyUsage=serverAuth,clientAuth\n")
        _openssl("req", *_NEW_KEY, "-keyout", pair.key, "-out", request, "-subj", f"/O={group}/CN={common_name}")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.own.certificate, "-CAkey", self.own.key, "-CAcreateserial"),
            *("-out", pair.certificate, "-days", _DAYS, "-extfile", extensions),
        )
        return pair

    def signing_key(self, name: str) -> KeyPair:
        """A bare key pair, public half in `certificate`: what service account tokens are signed with."""
        pair = KeyPair(self.folder / f"{name}.pub", self.folder / f"{name}.key")
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", pair.key)
        _openssl("ec", "-in", pair.key, "-pubout", "-out", pair.certificate)
        return pair


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    result = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(f"openssl {arguments[0]} failed:\n{result.stderr.strip()}")
