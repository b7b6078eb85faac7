"""What people type: an unmodified kubectl against the API."""

import json
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubeconfig_kubectl import Kubectl
from tests.support.kubeconfig_objects import event, pod, stateful_set, topic
from tests.support.kubeconfig_space import ApiServer, Space
from tests.support.tools import kubectl_path

pytestmark = pytest.mark.contract

_PATIENCE_S = 20
_READY = {
    "status": {
        "observedGeneration": 1,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "AllPartitionsOnline",
                "message": "",
                "observedGeneration": 1,
                "lastTransitionTime": "2026-11-21T09:00:00Z",
            }
        ],
    }
}


@pytest.fixture
def kubectl(api_server: ApiServer, space: Space, tmp_path: Path) -> Kubectl:
    return Kubectl(kubectl_path(), api_server.kubeconfig, space.name, tmp_path / "cache")


@pytest.fixture
def flights(kubectl: Kubectl) -> Kubectl:
    """With the topic `flights` applied."""
    assert (
        kubectl.ok("apply", "-f", "-", stdin=json.dumps(topic(partitions=6))) == "topic.headrace.io/flights created\n"
    )
    return kubectl


@pytest.fixture
def watching(flights: Kubectl) -> Iterator["subprocess.Popen[str]"]:
    command = flights.command("get", "topics", "-w", "--no-headers")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.terminate()


def _line(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None, "stdout is a pipe"
    ready, _, _ = select.select([process.stdout], [], [], _PATIENCE_S)
    assert ready, f"kubectl get -w printed nothing within {_PATIENCE_S} s"
    return process.stdout.readline().split()


def test_should_apply_what_has_changed_and_nothing_else(flights: Kubectl) -> None:
    same = json.dumps(topic(partitions=6))
    assert flights.ok("apply", "-f", "-", stdin=same) == "topic.headrace.io/flights unchanged\n"
    more = json.dumps(topic(partitions=7))
    assert flights.ok("apply", "-f", "-", stdin=more) == "topic.headrace.io/flights configured\n"
    assert flights.ok("get", "topic", "flights", "-o", "jsonpath={.spec.partitions}") == "7"


def test_should_apply_the_definitions_again(flights: Kubectl) -> None:
    crds = Path(__file__).parents[2] / "crds"
    said = flights.ok("apply", "-f", str(crds))
    assert "customresourcedefinition.apiextensions.k8s.io/topics.headrace.io" in said
    assert flights.ok("wait", "--for=condition=Established", "crd/topics.headrace.io", "--timeout=10s")


def test_should_print_columns_narrow_and_wide(flights: Kubectl) -> None:
    header, row = flights.ok("get", "topics").splitlines()
    assert header.split() == ["NAME", "PARTITIONS", "REPLICAS", "LEADERS", "IN-SYNC", "READY", "AGE"]
    assert row.split()[:4] == ["flights", "6", "3", "Unknown"]
    header, row = flights.ok("get", "ht", "-o", "wide").splitlines()
    assert header.split()[7:] == ["REASON", "LEADERS-BY-BROKER", "RETENTION", "CLEANUP", "DURABILITY"]
    assert row.split()[-4:] == ["Pending", "7d", "Delete", "Fsync"]
    assert "topic.headrace.io/flights" in flights.ok("get", "headrace", "-o", "name")


def test_should_print_yaml_and_json(flights: Kubectl) -> None:
    assert flights.ok("get", "topic", "flights", "-o", "yaml").startswith(
        "apiVersion: headrace.io/v1alpha1\nkind: Topic\n"
    )
    listed = json.loads(flights.ok("get", "topics", "-o", "json"))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["flights"]


def test_should_print_changes_as_they_come(watching: "subprocess.Popen[str]", flights: Kubectl) -> None:
    assert _line(watching)[:2] == ["flights", "6"]
    flights.ok("patch", "topic", "flights", "--type=merge", "-p", '{"spec":{"partitions":8}}')
    assert _line(watching)[:2] == ["flights", "8"]


async def test_should_describe_an_object_with_its_events(flights: Kubectl, space: Space) -> None:
    uid = (await space.read("topics", "flights"))["metadata"]["uid"]
    told = event(space.name, reason="Placed", message="six partitions on three brokers", type="Normal")
    told["involvedObject"] |= {"uid": uid, "apiVersion": "headrace.io/v1alpha1"}
    stamp = "2026-11-21T09:00:00Z"
    await space.create(
        "events", told | {"firstTimestamp": stamp, "lastTimestamp": stamp, "source": {"component": "operator"}}
    )
    said = flights.ok("describe", "topic", "flights")
    assert "Partitions:" in said
    assert "six partitions on three brokers" in said
    assert "Placed" in flights.ok("get", "events")


def test_should_wait_until_a_condition_holds(flights: Kubectl) -> None:
    command = flights.command("wait", "--for=condition=Ready", "topic/flights", "--timeout=20s")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        flights.ok("patch", "topic", "flights", "--type=merge", "--subresource=status", "-p", json.dumps(_READY))
        said, _ = waiting.communicate(timeout=_PATIENCE_S)
    assert said == "topic.headrace.io/flights condition met\n"


def test_should_say_so_when_a_condition_does_not_hold_in_time(flights: Kubectl) -> None:
    said = flights.refused("wait", "--for=condition=Ready", "topic/flights", "--timeout=1s")
    assert "timed out waiting for the condition on topics/flights" in said


def test_should_wait_until_an_object_is_gone(flights: Kubectl) -> None:
    with subprocess.Popen(
        flights.command("wait", "--for=delete", "topic/flights", "--timeout=20s"), stdout=subprocess.PIPE, text=True
    ) as waiting:
        assert flights.ok("delete", "topic", "flights").startswith('topic.headrace.io "flights" deleted')
        assert waiting.wait(_PATIENCE_S) == 0


def test_should_patch_in_every_way(flights: Kubectl) -> None:
    flights.ok("patch", "topic", "flights", "--type=merge", "-p", '{"spec":{"partitions":7}}')
    flights.ok(
        "patch", "topic", "flights", "--type=json", "-p", '[{"op":"replace","path":"/spec/partitions","value":8}]'
    )
    flights.ok("patch", "topic", "flights", "--type=merge", "--subresource=status", "-p", json.dumps(_READY))
    assert (
        flights.ok("get", "topic", "flights", "-o", "jsonpath={.spec.partitions}/{.status.observedGeneration}") == "8/1"
    )
    flights.ok("label", "topic", "flights", "team=data")
    flights.ok("annotate", "topic", "flights", "headrace.io/paused=true")
    assert "flights" in flights.ok("get", "topics", "-l", "team in (data)")


def test_should_replace_and_edit(flights: Kubectl) -> None:
    current = json.loads(flights.ok("get", "topic", "flights", "-o", "json"))
    current["spec"]["partitions"] = 7
    assert flights.ok("replace", "-f", "-", stdin=json.dumps(current)) == "topic.headrace.io/flights replaced\n"
    edited = flights.ok("edit", "topic", "flights", editor="sed -i s/^..partitions:.7/\\ \\ partitions:\\ 9/")
    assert edited == "topic.headrace.io/flights edited\n"
    assert flights.ok("get", "topic", "flights", "-o", "jsonpath={.spec.partitions}") == "9"


def test_should_show_what_would_change(flights: Kubectl) -> None:
    done = flights.run("diff", "-f", "-", stdin=json.dumps(topic(partitions=9)))
    assert done.returncode == 1
    assert "+  partitions: 9" in done.stdout


def test_should_explain_the_fields(kubectl: Kubectl) -> None:
    said = kubectl.ok("explain", "topic.spec.durability")
    assert "VERSION:    v1alpha1" in said
    assert "ENUM:\n    Fsync\n    Replicated\n" in said
    assert "partitions\t<integer> -required-" in kubectl.ok("explain", "topic.spec")
    assert "name\t<string>" in kubectl.ok("explain", "topic.metadata")


def test_should_list_the_resources_and_the_version(kubectl: Kubectl) -> None:
    assert "topics" in kubectl.ok("api-resources", "--api-group=headrace.io", "-o", "name")
    assert "headrace.io/v1alpha1" in kubectl.ok("api-versions")
    assert "Server Version: v1.36" in kubectl.ok("version")
    assert kubectl.ok("auth", "can-i", "create", "topics") == "yes\n"


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        (
            topic("my_topic"),
            'The Topic "my_topic" is invalid: \n* metadata.name: Invalid value: "my_topic": a lowercase',
        ),
        (
            topic(partitions=0),
            'The Topic "flights" is invalid: spec.partitions: Invalid value: 0: spec.partitions in body should be '
            "greater than or equal to 1",
        ),
        (
            topic(replicas=2, minInsyncReplicas=3),
            'The Topic "flights" is invalid: spec.minInsyncReplicas: Invalid value: minInsyncReplicas must not exceed '
            "replicas",
        ),
        (topic(replica=3), 'strict decoding error: unknown field "spec.replica"'),
        (topic() | {"kind": "Topics"}, 'no matches for kind "Topics" in version "headrace.io/v1alpha1"'),
        (topic() | {"apiVersion": "headrace.io/v9"}, 'no matches for kind "Topic" in version "headrace.io/v9"'),
    ],
)
def test_should_refuse_a_wrong_manifest_in_a_sentence(
    kubectl: Kubectl, manifest: dict[str, object], complaint: str
) -> None:
    assert complaint in kubectl.refused("apply", "-f", "-", stdin=json.dumps(manifest))


def test_should_refuse_to_shrink(flights: Kubectl) -> None:
    said = flights.refused("apply", "-f", "-", stdin=json.dumps(topic(partitions=3)))
    assert (
        said == 'The Topic "flights" is invalid: spec.partitions: Invalid value: 3: partitions can grow, never shrink\n'
    )


def test_should_say_what_is_not_there(kubectl: Kubectl) -> None:
    assert kubectl.refused("get", "topic", "absent") == (
        'Error from server (NotFound): topics.headrace.io "absent" not found\n'
    )
    assert kubectl.run("get", "topics").stderr == f"No resources found in {kubectl.namespace} namespace.\n"


def test_should_scale_and_delete_what_runs(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", stdin=json.dumps(stateful_set(replicas=3)))
    assert kubectl.ok("scale", "sts", "headrace", "--replicas=5") == "statefulset.apps/headrace scaled\n"
    assert kubectl.ok("get", "sts", "headrace", "--no-headers").split()[:2] == ["headrace", "0/5"]
    kubectl.ok("apply", "-f", "-", stdin=json.dumps(stateful_set(replicas=4)))
    assert kubectl.ok("get", "sts", "headrace", "-o", "jsonpath={.spec.replicas}") == "4"

    kubectl.ok("apply", "-f", "-", stdin=json.dumps(pod(nodeName="node0")))
    assert "headrace-0" in kubectl.ok("delete", "pod", "headrace-0", "--force", "--grace-period=0")
    assert kubectl.ok("get", "pods", "-o", "name") == ""


def test_should_create_and_delete_a_namespace(kubectl: Kubectl) -> None:
    name = f"{kubectl.namespace}-x"
    assert kubectl.ok("create", "namespace", name) == f"namespace/{name} created\n"
    assert name in kubectl.ok("get", "ns", "-o", "name")
    assert kubectl.ok("delete", "namespace", name, "--wait=false").startswith(f'namespace "{name}" deleted')


def test_should_delete_by_manifest_and_all_at_once(flights: Kubectl) -> None:
    flights.ok("delete", "-f", "-", stdin=json.dumps(topic()))
    flights.ok("create", "-f", "-", stdin=json.dumps(topic("a")))
    flights.ok("delete", "topics", "--all")
    assert flights.ok("get", "topics", "-o", "name") == ""
