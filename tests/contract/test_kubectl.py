"""What an unmodified kubectl does that no recorded session can hold: see `test_sessions`."""

import json
from pathlib import Path

import pytest

from tests.support.api_objects import pod, topic
from tests.support.api_server import ApiServer, Kubectl, Space
from tests.support.patience import patient
from tests.support.tools import kubectl_path


@pytest.fixture
def kubectl(api_server: ApiServer, space: Space, tmp_path: Path) -> Kubectl:
    return Kubectl(kubectl_path(), api_server.kubeconfig, space.name, tmp_path / "cache")


def test_should_apply_the_definitions_again(kubectl: Kubectl) -> None:
    crds = Path(__file__).parents[2] / "crds"
    said = kubectl.ok("apply", "-f", str(crds))
    assert "customresourcedefinition.apiextensions.k8s.io/topics.headrace.io" in said
    assert kubectl.ok("wait", "--for=condition=Established", "crd/topics.headrace.io", f"--timeout={patient(30):.0f}s")
    assert kubectl.ok("apply", "-f", str(crds)).count(" unchanged\n") == len(list(crds.glob("*.yaml")))


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("command", [("exec", "headrace-0", "--", "true"), ("attach", "headrace-0")])
def test_should_say_that_there_is_no_container_to_go_into(kubectl: Kubectl, command: tuple[str, ...]) -> None:
    kubectl.ok("create", "-f", "-", stdin=json.dumps(pod(nodeName="node0")))
    said = kubectl.refused(*command)
    assert f"{command[0]} is not supported by the API of headrace dev: pod headrace-0 is a process of this" in said


@pytest.mark.usefixtures("controllers")
def test_should_end_a_namespace_and_wait_for_it(kubectl: Kubectl) -> None:
    name = f"{kubectl.namespace}-x"
    kubectl.ok("create", "namespace", name)
    kubectl.ok("create", "-f", "-", "--namespace", name, stdin=json.dumps(topic()))
    assert kubectl.ok("delete", "namespace", name) == f'namespace "{name}" deleted\n'
    assert name not in kubectl.ok("get", "ns", "-o", "name")
