"""`helm uninstall` leaves what was asked to stay, and nothing else; what stays can be used, and deleted."""

from e2e.release import Release
from e2e.waiting import wait_for


def test_should_leave_what_was_asked_to_stay_and_nothing_else(release: Release) -> None:
    release.create_topic("kept", partitions=3, replicas=3)
    release.headrace("produce", "kept", stdin="".join(f"{number}\n" for number in range(1000)))
    release.uninstall()

    selector = f"--selector=app.kubernetes.io/instance={release.name}"
    wait_for(lambda: not release.kubectl("get", "pods", selector, "--output=name"), "the last pod is gone")
    kinds = "services,statefulsets,deployments,serviceaccounts,roles,rolebindings,poddisruptionbudgets,jobs"
    assert release.kubectl("get", f"{kinds},networkpolicies,configmaps", selector, "--output=name") == ""
    assert release.cluster.kubectl("get", "clusterroles,clusterrolebindings", selector, "--output=name") == ""
    assert len(release.kubectl("get", "pvc", selector, "--output=name").split()) >= 3
    assert len(release.cluster.kubectl("get", "crds", "--output=name").split()) >= 3
    assert "finalizers" not in release.seen("topic", "kept")["metadata"]

    release.install()
    release.users("wait", "--for=condition=Ready", "topic/kept", "--timeout=60s")
    said = release.headrace("consume", "kept", "--output", "value")
    assert sorted(map(int, said.split())) == list(range(1000))

    release.uninstall()
    release.users("delete", "topics", "--all", "--timeout=30s")
    release.users("delete", "consumergroups", "--all", "--timeout=30s")
