"""Two brokers that speak TLS: what clients negotiate with them, and what they ask of each other."""

import ssl

import pytest

from tests.support.batches import batch_of
from tests.support.certificates import Authority
from tests.support.cluster import Cluster, http
from tests.support.tls import handshake
from tests.support.world import BATCH


def negotiated(url: str, trust: ssl.SSLContext, *offers: str) -> tuple[str | None, str | None]:
    """Protocol by ALPN, version of TLS."""
    with handshake(url, trust, *offers) as secure:
        return secure.selected_alpn_protocol(), secure.version()


def test_should_choose_http2_or_http1_by_alpn(cluster: Cluster, authority: Authority) -> None:
    url = cluster.url()
    assert url.startswith("https://127.0.0.1:")
    assert negotiated(url, authority.trust, "h2", "http/1.1") == ("h2", "TLSv1.3")
    assert negotiated(url, authority.trust, "http/1.1") == ("http/1.1", "TLSv1.3")
    assert http("GET", f"{url}/healthz", tls=authority.trust).status == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_should_refuse_what_is_older_than_tls_1_2(cluster: Cluster, authority: Authority) -> None:
    trust = authority.trust
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    assert negotiated(cluster.url(), trust, "h2") == ("h2", "TLSv1.2")
    trust.minimum_version = trust.maximum_version = ssl.TLSVersion.TLSv1_1
    trust.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        negotiated(cluster.url(), trust, "h2")


def test_should_pass_requests_on_to_a_leader_that_speaks_tls(
    cluster: Cluster, authority: Authority, topic: str
) -> None:
    cluster.create_topic(topic)
    leader = cluster.leader_url(topic)
    other = next(url for url in (cluster.url(0), cluster.url(1)) if url != leader)
    records = f"{other}/v1/namespaces/default/topics/{topic}/partitions/0/records"
    produced = http("POST", records, batch_of(b"a", b"b"), {"Content-Type": BATCH}, tls=authority.trust)
    assert (produced.status, produced.json["lastOffset"]) == (200, 1)
    fetched = http("GET", f"{records}?offset=0", headers={"Accept": BATCH}, tls=authority.trust)
    assert fetched.headers["headrace-next-offset"] == "2"
