"""The kubeconfig of a running `headrace dev`, for an unmodified kubectl."""

import json
from pathlib import Path

_NAME = "headrace-dev"


def write_kubeconfig(path: Path, api_url: str) -> None:
    """Readable by its owner alone, as kubectl wants it, though there is no secret inside."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": {"server": api_url}}],
        "users": [{"name": _NAME, "user": {}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": "default"}}],
        "current-context": _NAME,
    }
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(json.dumps(document, indent=2) + "\n")  # JSON is YAML
