"""`helm uninstall` leaves what was asked to stay, and nothing else; what stays can be used, and deleted."""

from e2e.release import Release


def test_should_leave_what_was_asked_to_stay_and_nothing_else(release: Release) -> None:
    release.create_topic("kept", partitions=3, replicas=3)
    release.headrace("produce", "kept", stdin="".join(f"{number}\n" for number in range(1000)))
    assert_allowed_all(release)
    release.uninstall()

    selector = f"--selector=app.kubernetes.io/instance={release.name}"
    # Whoever installs again at once finds no pod whose name is taken.
    assert release.kubectl("get", "pods", selector, "--output=name") == ""
    kinds = "secrets,services,statefulsets,deployments,serviceaccounts,roles,rolebindings,poddisruptionbudgets,jobs"
    assert release.kubectl("get", f"{kinds},networkpolicies,configmaps", selector, "--output=name") == ""
    assert release.cluster.kubectl("get", "clusterroles,clusterrolebindings", selector, "--output=name") == ""
    assert len(release.kubectl("get", "pvc", selector, "--output=name").split()) >= 3
    assert len(release.cluster.kubectl("get", "crds", "--output=name").split()) >= 3
    assert "finalizers" not in release.seen("topic", "kept")["metadata"]

    # Which lives brokers had: who begins again after the last one is no stranger to their volumes.
    leases = release.kubectl("get", "leases", "--output=name").split()
    assert all(lease.startswith("lease.coordination.k8s.io/headrace-") for lease in leases)

    release.install()
    release.users("wait", "--for=condition=Ready", "topic/kept", "--timeout=60s")
    said = release.headrace("consume", "kept", "--output", "value")
    assert sorted(map(int, said.split())) == list(range(1000))

    release.uninstall()
    release.users("delete", "topics", "--all", "--timeout=30s")
    release.users("delete", "consumergroups", "--all", "--timeout=30s")


def assert_allowed_all(release: Release) -> None:
    """After all that was done to them nobody of this release was refused anything by the API server."""
    for component in ("broker", "operator"):
        selector = f"--selector=app.kubernetes.io/instance={release.name},app.kubernetes.io/component={component}"
        said = release.kubectl("logs", selector, "--tail=-1", "--prefix", "--max-log-requests=10")
        assert said
        assert [line for line in said.splitlines() if "orbidden" in line] == []
