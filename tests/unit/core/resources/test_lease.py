from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.resources.lease import CLUSTER_LABEL, LEASE_REGRESSED_MAX, BrokerLease, lease_name
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
