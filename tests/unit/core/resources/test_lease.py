"""Nobody connects to wherever a Lease says."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.resources.lease import (
    CLUSTER_LABEL,
    LEASE_REGRESSED_MAX,
    BrokerLease,
    Doubts,
    Whereabouts,
    lease_name,
)
from headrace.core.resources.metadata import InvalidResourceError, Metadata
from headrace.core.types import BrokerId, Incarnation, TopicUid

leases = st.builds(
    lambda number, incarnation, zone, draining, clean, renewed, full, regressed, peer_key: BrokerLease(
        Metadata(lease_name(number), "default", labels={CLUSTER_LABEL: "headrace"}),
        number,
        incarnation,
        f"http://broker-{number}:9701",
        zone,
        draining,
        clean,
        renewed,
        full,
        regressed,
        peer_key,
    ),
    st.integers(0, 99).map(BrokerId),
    st.integers(0, 1 << 40).map(Incarnation),
    st.sampled_from(["", "a"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "2026-11-21T09:00:00.000001Z"]),
    st.booleans(),
    st.frozensets(st.sampled_from(["uid-1", "uid-2"]).map(TopicUid)),
    st.sampled_from(["", "k"]),
)


@given(leases)
def test_should_come_back_when_any_lease_is_written_out(lease: BrokerLease) -> None:
    parsed = BrokerLease.parse(lease.to_object())
    assert replace(parsed, metadata=lease.metadata) == lease
    assert parsed.cluster == "headrace"


def test_should_show_the_key_of_a_broker_to_whoever_reads_its_lease_alone() -> None:
    lease = BrokerLease(Metadata("headrace-broker-2"), BrokerId(2), Incarnation(4), "http://b:9703", peer_key="secret")
    assert lease.to_object()["metadata"]["annotations"]["headrace.io/peer-key"] == "secret"
    assert BrokerLease.parse(lease.to_object()).peer_key == "secret"
    assert "secret" not in repr(lease)


def test_should_spell_a_lease_as_the_contract_says() -> None:
    lease = BrokerLease(Metadata("headrace-broker-2"), BrokerId(2), Incarnation(4), "http://b:9703", zone="eu-1")
    assert lease.renewed("2026-11-21T09:00:00.000001Z").to_object() == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "headrace-broker-2",
            "annotations": {
                "headrace.io/url": "http://b:9703",
                "headrace.io/zone": "eu-1",
                "headrace.io/draining": "false",
                "headrace.io/clean": "false",
            },
        },
        "spec": {
            "holderIdentity": "4",
            "leaseDurationSeconds": 10,
            "renewTime": "2026-11-21T09:00:00.000001Z",
        },
    }


def test_should_name_trouble_only_while_there_is_any_and_no_more_topics_than_fit() -> None:
    lease = BrokerLease(Metadata("headrace-broker-2"), BrokerId(2), Incarnation(4), "http://b:9703")
    troubled = replace(lease, full=True, regressed=frozenset(TopicUid(str(i)) for i in range(LEASE_REGRESSED_MAX + 1)))
    parsed = BrokerLease.parse(troubled.to_object())
    assert parsed.full
    assert len(parsed.regressed) == LEASE_REGRESSED_MAX
    well = replace(parsed, full=False, regressed=frozenset()).to_object()["metadata"]["annotations"]
    assert not any("full" in name or "regressed" in name for name in well)


def test_should_have_no_holder_when_nobody_took_it_yet() -> None:
    assert BrokerLease.parse({"metadata": {"name": "headrace-broker-0"}}).incarnation == 0


def test_should_belong_to_no_cluster_when_it_has_no_label() -> None:
    assert BrokerLease.parse({"metadata": {"name": "headrace-broker-0"}}).cluster == ""


@pytest.mark.parametrize("name", ["node-1", "headrace-broker-", "headrace-broker-x"])
def test_should_refuse_a_lease_that_is_not_a_brokers(name: str) -> None:
    with pytest.raises(InvalidResourceError, match="is not a broker's"):
        BrokerLease.parse({"metadata": {"name": name}})


def test_should_refuse_a_holder_that_is_not_an_incarnation() -> None:
    with pytest.raises(InvalidResourceError, match="'me' is not an incarnation"):
        BrokerLease.parse({"metadata": {"name": "headrace-broker-0"}, "spec": {"holderIdentity": "me"}})


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
