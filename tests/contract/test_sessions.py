"""Recorded kubectl sessions (`tests/golden/kubectl`), replayed: an unmodified kubectl must say the same, word for word.

They are recorded on a real kube-apiserver, by

    HEADRACE_REWRITE_GOLDEN=1 python -m e2e.lab run -- pytest tests/contract/test_sessions.py

and replayed against the embedded API by `make test`, against the real one by `make contract`. What cannot agree stands
in no session: what controllers do (a bare kube-apiserver has none, so no namespace ends there and no Pod starts), the
schemas of Kubernetes' own kinds, the descriptions of `metadata`, OpenAPI v2, and lists of all that is served. What
needs no kubectl to be seen is tested over HTTP, which is cheaper.
"""

import asyncio
import difflib
import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from e2e.lab.programs import KUBERNETES_MINOR_PATCH
from tests.support.api_server import ApiServer
from tests.support.kubeconfig import connect
from tests.support.kubectl_session import Shell, Step, parse, render
from tests.support.patience import patient
from tests.support.tools import cannot_run, kubectl_path

_GOLDEN = Path(__file__).parents[1] / "golden" / "kubectl"
_SESSIONS = sorted(file.stem for file in _GOLDEN.glob("*.txt"))
_REWRITE = os.environ.get("HEADRACE_REWRITE_GOLDEN") == "1"
_RECORDED_MINOR = KUBERNETES_MINOR_PATCH.partition(".")[0]
_AT_ONCE = 3
_PATIENCE_S = patient(110)


@pytest.fixture(scope="module")
def played(
    api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, "Future[list[Step]]"]]:
    """The sessions that are asked for, played side by side: each has a namespace of its own."""
    _require_kubectl()
    folder = tmp_path_factory.mktemp("sessions")
    chosen = [name for name in _SESSIONS if any(item.name.endswith(f"[{name}]") for item in request.session.items)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {name: pool.submit(_play, name, api_server, folder) for name in chosen}


@pytest.mark.parametrize("name", _SESSIONS)
def test_should_say_what_was_recorded(
    name: str, played: dict[str, "Future[list[Step]]"], api_server: ApiServer
) -> None:
    steps = played[name].result(_PATIENCE_S)
    recorded, now = (_GOLDEN / f"{name}.txt").read_text(), render(steps)
    if _REWRITE:
        assert not api_server.embedded, "sessions are recorded on a real kube-apiserver: `python -m e2e.lab run -- ...`"
        (_GOLDEN / f"{name}.txt").write_text(now)
        return
    difference = difflib.unified_diff(recorded.splitlines(), now.splitlines(), "recorded", "now", lineterm="", n=4)
    if now != recorded:
        pytest.fail("\n".join(difference), pytrace=False)


def _require_kubectl() -> None:
    """Another kubectl says some things in other words."""
    command = [kubectl_path(), "version", "--client", "-o", "json"]
    said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    minor = said["clientVersion"]["minor"]
    if minor != _RECORDED_MINOR:
        cannot_run(f"recorded with kubectl 1.{_RECORDED_MINOR}, this is 1.{minor}: `make lab-build` builds it")


def _play(name: str, server: ApiServer, folder: Path) -> list[Step]:
    namespace = f"session-{uuid4().hex[:8]}"
    own = folder / name
    own.mkdir()
    kubeconfig = _write_kubeconfig(own / "kubeconfig", server.kubeconfig, namespace)
    asyncio.run(_create_namespace(server.kubeconfig, namespace))
    environment = {
        "KUBECONFIG": str(kubeconfig),
        "KUBECACHEDIR": str(folder / "cache"),
        "KUBE_EDITOR": "false",
        # kubectl lives for a moment: it need not collect garbage, nor start threads for it. A quarter of its time.
        "GOGC": "off",
        "GOMAXPROCS": "1",
        "PATH": f"{Path(kubectl_path()).parent}:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
    }
    shell = Shell(own, environment, namespace)
    return [shell.play(step) for step in parse((_GOLDEN / f"{name}.txt").read_text())]


def _write_kubeconfig(path: Path, of_server: Path, namespace: str) -> Path:
    """The server's kubeconfig, with the session's namespace in its context."""
    document = yaml.safe_load(of_server.read_text())
    for context in document["contexts"]:
        context["context"]["namespace"] = namespace
    path.write_text(yaml.safe_dump(document))
    return path


async def _create_namespace(kubeconfig: Path, name: str) -> None:
    async with connect(kubeconfig) as api:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        answer = await api.request("POST", "/api/v1/namespaces", namespace)
        assert answer.status == 201, answer.text
