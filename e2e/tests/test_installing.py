"""What a user has after `helm install`."""

import base64
import json
from typing import Any

import pytest
import trustme
import yaml

from e2e.lab.errors import LabError
from e2e.release import Release
from e2e.waiting import wait_for


def test_should_run_brokers_and_operators_when_installed(release: Release) -> None:
    assert release.get("statefulset", release.name)["status"]["readyReplicas"] == 3
    assert release.get("deployment", f"{release.name}-operator")["status"]["readyReplicas"] == 2
    assert "Phase:          Succeeded" in release.helm("test", release.name)


def test_should_keep_the_restricted_pod_security_standard(release: Release) -> None:
    label = "pod-security.kubernetes.io/enforce=restricted"
    namespace = f"namespace/{release.namespace}"
    # The API server warns of pods that are there and would not be let in.
    release.kubectl("label", "--dry-run=server", "--warnings-as-errors", namespace, label)


def test_should_give_the_operator_the_rights_that_it_needs(release: Release) -> None:
    release.create_topic("rights", partitions=1, replicas=1)
    said = release.kubectl("logs", "--selector=app.kubernetes.io/component=operator", "--tail=-1")
    assert "this operator acts" in said
    assert "kopf stopped" not in said
    assert "orbidden" not in said
    release.users("delete", "topic/rights", "--timeout=60s")


def test_should_carry_records_when_a_topic_is_applied(release: Release) -> None:
    release.create_topic("orders", partitions=3, replicas=3)
    release.headrace("produce", "orders", stdin="".join(f"order {number}\n" for number in range(100)))
    said = release.headrace("consume", "orders", "--group", "billing", broker=1)
    assert sorted(json.loads(line)["value"] for line in said.splitlines()) == sorted(f"order {n}" for n in range(100))

    def caught_up() -> bool:
        status = release.seen("consumergroup", "billing").get("status", {})
        return (status.get("lag"), status.get("state")) == ("0", "Empty")

    wait_for(caught_up, "the ConsumerGroup shows that all is read")
    shown = release.users("get", "consumergroups").splitlines()
    assert shown[0].split() == ["NAME", "STATE", "MEMBERS", "LAG", "TOPICS", "AGE"]
    assert "orders" in shown[1]


def test_should_reset_a_group_when_its_manifest_says_so(release: Release) -> None:
    release.users("delete", "topic/again", "consumergroup/replay", "--ignore-not-found", "--timeout=60s")
    release.create_topic("again", partitions=3, replicas=3)
    release.headrace("produce", "again", stdin="".join(f"{number}\n" for number in range(50)))
    read = ("consume", "again", "--group", "replay", "--output", "value")
    assert len(release.headrace(*read).split()) == 50
    assert release.headrace(*read) == ""
    reset = {"id": "from-the-start", "to": "Earliest"}
    manifest = {
        "apiVersion": "headrace.io/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": "replay"},
        "spec": {"resetOffsets": reset},
    }
    release.users("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump(manifest))
    applied = "--for=jsonpath={.status.lastReset.result}=Applied"
    release.users("wait", applied, "consumergroup/replay", "--timeout=60s")
    assert len(release.headrace(*read, broker=2).split()) == 50


def test_should_carry_records_over_tls_when_a_secret_is_named(release: Release) -> None:
    """By Helm 4: one broker, in a namespace of its own, with a certificate as cert-manager makes it."""
    secured = release.beside("secured", "helm4")
    release.users("delete", "topic/secrets", "--ignore-not-found", "--timeout=60s")
    release.cluster.kubectl("delete", "namespace", secured.namespace, "--ignore-not-found", "--timeout=120s")
    release.cluster.kubectl("create", "namespace", secured.namespace)
    secret = tls_secret([f"*.secured.{secured.namespace}.svc", f"secured-bootstrap.{secured.namespace}.svc"])
    secured.apply(secret)
    secured.install("--set", "crds.install=false,brokers.replicas=1,operator.replicas=1,tls.secretName=certificate")
    assert "Succeeded" in secured.helm("test", secured.name)
    secured.create_topic("secrets", partitions=1, replicas=1)
    secured.headrace("produce", "secrets", stdin="told\n")
    assert secured.headrace("consume", "secrets", "--output", "value") == "told\n"
    secured.users("delete", "topic/secrets", "--timeout=60s")
    secured.uninstall()
    release.cluster.kubectl("delete", "namespace", secured.namespace, "--timeout=120s")


def tls_secret(names: list[str]) -> dict[str, Any]:
    authority = trustme.CA()
    certificate = authority.issue_cert(*names)
    data = {
        "tls.crt": b"".join(blob.bytes() for blob in certificate.cert_chain_pems),
        "tls.key": certificate.private_key_pem.bytes(),
        "ca.crt": authority.cert_pem.bytes(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "certificate"},
        "data": {name: base64.b64encode(content).decode() for name, content in data.items()},
    }


def test_should_refuse_a_topic_that_shrinks(release: Release) -> None:
    release.create_topic("orders", partitions=3, replicas=3)
    with pytest.raises(LabError, match="partitions can grow, never shrink"):
        release.users("patch", "topic/orders", "--type=merge", "--patch", '{"spec": {"partitions": 2}}')
