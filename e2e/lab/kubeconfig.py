"""Kubeconfigs whose user is a client certificate."""

from pathlib import Path

import yaml

from e2e.lab.certificates import KeyPair


def write_kubeconfig(path: Path, url: str, authority: KeyPair, user: KeyPair) -> Path:
    """Names the certificates' files, so it is good for as long as they are there."""
    cluster = {"server": url, "certificate-authority": str(authority.certificate)}
    credentials = {"client-certificate": str(user.certificate), "client-key": str(user.key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": credentials}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab", "namespace": "default"}}],
        "current-context": "lab",
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    path.chmod(0o600)
    return path
