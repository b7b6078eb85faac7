"""Nobody connects to wherever a Lease says."""

import pytest

from headrace.core.resources.lease import CLUSTER_LABEL, BrokerLease, Doubts, Whereabouts, lease_name
from headrace.core.resources.metadata import Metadata
from headrace.core.types import BrokerId, Incarnation

POD = "http://logs-{}.logs.data.svc:9701"
METADATA_SERVICE = "http://169.254.169.254/latest"


def lease(url: str, broker: int = 1) -> BrokerLease:
    metadata = Metadata(lease_name(BrokerId(broker)), "data", labels={CLUSTER_LABEL: "logs"})
    return BrokerLease(metadata, BrokerId(broker), Incarnation(1), url, peer_key="key")


@pytest.mark.parametrize(
    ("url", "whereabouts"),
    [
        ("http://127.0.0.1:9702", Whereabouts.THIS_MACHINE),
        ("https://localhost:9702", Whereabouts.THIS_MACHINE),
        (POD.format(1), Whereabouts.STATEFUL_SET),
        ("https://logs-1.logs.data.svc.cluster.local:9701", Whereabouts.STATEFUL_SET),
        (POD.format(2), Whereabouts.BY_HAND),
        ("http://10.0.0.1:9701", Whereabouts.BY_HAND),
        ("http://broker.example:9701", Whereabouts.BY_HAND),
    ],
)
def test_should_tell_by_a_brokers_own_url_where_the_others_are(url: str, whereabouts: Whereabouts) -> None:
    assert Whereabouts.of_broker(lease(url)) is whereabouts
    assert whereabouts.allow(lease(url))


@pytest.mark.parametrize(
    ("server", "in_pod", "whereabouts"),
    [
        ("https://10.96.0.1:443", True, Whereabouts.STATEFUL_SET),
        ("http://127.0.0.1:9700", False, Whereabouts.THIS_MACHINE),
        ("https://127.0.0.1:6443", False, None),
        ("https://api.example:6443", False, None),
    ],
)
def test_should_tell_by_where_an_operator_runs(server: str, in_pod: bool, whereabouts: Whereabouts | None) -> None:
    assert Whereabouts.of_operator(server, in_pod=in_pod) is whereabouts


@pytest.mark.parametrize("whereabouts", Whereabouts)
@pytest.mark.parametrize(
    "url",
    [
        METADATA_SERVICE,
        "http://169.254.169.254:80",
        "file:///etc/passwd",
        "http://",
        "http://[",
        "http://a:b@logs-1.logs.data.svc:9701",
        "http://logs-1.logs.data.svc:9701/path",
        "http://logs-1.logs.data.svc:9701?q",
        "http://logs-1.logs.data.svc:0",
        "http://logs-1.logs.data.svc:99999",
    ],
)
def test_should_never_go_there(whereabouts: Whereabouts, url: str) -> None:
    assert not whereabouts.allow(lease(url))
    refused = whereabouts.checked(lease(url))
    assert (refused.url, refused.peer_key, refused.broker) == ("", "", 1)


@pytest.mark.parametrize(
    ("whereabouts", "url"),
    [
        (Whereabouts.THIS_MACHINE, POD.format(1)),
        (Whereabouts.THIS_MACHINE, "http://10.0.0.1:9701"),
        (Whereabouts.STATEFUL_SET, "http://127.0.0.1:9701"),
        (Whereabouts.STATEFUL_SET, "http://10.0.0.1:9701"),
        (Whereabouts.STATEFUL_SET, POD.format(2)),
        (Whereabouts.STATEFUL_SET, "http://logs-1.logs.other.svc:9701"),
        (Whereabouts.STATEFUL_SET, "http://logs-1.logs.data.svc.evil.example:9701"),
        (Whereabouts.BY_HAND, "http://localhost:9701"),
        (Whereabouts.BY_HAND, "http://[::1]:9701"),
    ],
)
def test_should_not_go_where_no_broker_of_this_cluster_is(whereabouts: Whereabouts, url: str) -> None:
    assert not whereabouts.allow(lease(url))


@pytest.mark.parametrize("whereabouts", Whereabouts)
def test_should_take_a_lease_without_a_url_for_what_it_is(whereabouts: Whereabouts) -> None:
    assert whereabouts.checked(lease("")) == lease("")


def test_should_tell_of_each_refused_url_once() -> None:
    doubts = Doubts(Whereabouts.STATEFUL_SET)
    assert doubts.refusal(lease(POD.format(1))) is None
    refusal = doubts.refusal(lease(METADATA_SERVICE))
    assert refusal is not None
    assert refusal.startswith(
        f"Lease headrace-broker-1 says that broker 1 is at '{METADATA_SERVICE}', which is not the"
    )
    assert doubts.refusal(lease(METADATA_SERVICE)) is None
    assert doubts.refusal(lease("http://10.0.0.1:1")) is not None
    assert doubts.refusal(lease(POD.format(1))) is None
    assert doubts.refusal(lease(METADATA_SERVICE)) is not None


def test_should_warn_once_of_a_lease_that_is_not_believed() -> None:
    told: list[str] = []
    doubts = Doubts(Whereabouts.THIS_MACHINE)
    for _ in range(2):
        assert doubts.believed(lease("http://10.0.0.1:9701"), told.append).url == ""
    assert len(told) == 1
    assert doubts.believed(lease("http://127.0.0.1:9701"), told.append).url == "http://127.0.0.1:9701"
    assert len(told) == 1
