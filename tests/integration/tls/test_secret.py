"""A broker that takes its certificate from a Secret: rotated, with a new authority, and gone."""

from base64 import b64encode
from collections.abc import Mapping

from tests.support.certificates import Authority
from tests.support.cluster import Cluster, http
from tests.support.tls import reloads, serial
from tests.support.waiting import wait_for

SECRETS = "/api/v1/namespaces/default/secrets"


def secret_of(data: Mapping[str, bytes]) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "brokers-tls"},
        "data": {name: b64encode(content).decode() for name, content in data.items()},
    }


def test_should_follow_the_secret_to_another_authority(cluster: Cluster, authority: Authority, topic: str) -> None:
    cluster.create_topic(topic)
    mine = Authority()
    cluster.kube("POST", SECRETS, secret_of(authority.secret()))
    broker = cluster.start_broker(2, "--tls-secret", "brokers-tls")
    url = cluster.url(2)
    assert serial(url, authority.trust)

    cluster.kube("PUT", f"{SECRETS}/brokers-tls", secret_of(mine.secret()))
    wait_for(lambda: serial(url, mine.trust), "the certificate of the new authority")
    records = f"{url}/v1/namespaces/default/topics/{topic}/partitions/0/records?offset=0"
    problem = http("GET", records, tls=mine.trust)
    assert (problem.status, problem.json["code"]) == (421, "NotLeader")
    assert "has a certificate of an authority that is not trusted here" in problem.json["detail"]

    both = mine.pem + authority.pem
    cluster.kube("PUT", f"{SECRETS}/brokers-tls", secret_of(mine.secret() | {"ca.crt": both}))
    wait_for(lambda: http("GET", records, tls=mine.trust).status == 200, "the way to the leader")

    cluster.kube("DELETE", f"{SECRETS}/brokers-tls")
    wait_for(lambda: reloads(url, mine.trust, "refused") == 1, "the missing Secret is noticed")
    said = "refused: Secret default/brokers-tls is not there: make it with `kubectl create secret tls`"
    wait_for(lambda: said in broker.log, "it says why")
    assert serial(url, mine.trust)
    assert broker.stop() == 0
