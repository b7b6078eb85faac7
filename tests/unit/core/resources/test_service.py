from headrace.core.resources.kubernetes_objects import bootstrap_service
from headrace.core.resources.metadata import DEFAULT_CLUSTER


def test_should_name_the_bootstrap_service_after_the_cluster() -> None:
    assert bootstrap_service(DEFAULT_CLUSTER) == "headrace-bootstrap"
