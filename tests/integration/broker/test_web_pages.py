"""No page in the user's browser changes anything at a broker, or reads from one of this machine alone."""

from tests.support.cluster import Answer, Cluster, http
from tests.support.web_pages import PAGES
from tests.support.world import NDJSON_BODY


@PAGES
def test_should_take_no_records_from_a_page(shared: Cluster, topic: str, headers: dict[str, str]) -> None:
    shared.create_topic(topic)
    records = shared.records_url(topic)
    lines = NDJSON_BODY
    refused = http("POST", records, b'{"value": "a"}\n', lines | headers)
    assert (refused.status, refused.json["code"]) == (403, "ForeignPage")
    assert http("DELETE", f"{records}?beforeOffset=latest", headers=headers).status == 403
    assert _group(shared, headers).status == 403
    assert http("POST", records, b'{"value": "a"}\n', lines).json["baseOffset"] == 0


def test_should_show_no_records_to_a_page_whose_name_leads_here(shared: Cluster) -> None:
    assert http("GET", f"{shared.url()}/v1/cluster", headers={"Host": "rebound.evil.example"}).status == 403
    assert http("GET", f"{shared.url()}/v1/cluster", headers={"Host": "localhost"}).status == 200


def _group(cluster: Cluster, headers: dict[str, str]) -> Answer:
    """A body of JSON that says nothing of its media type, as a page's may."""
    plain = {"Content-Type": "text/plain;charset=UTF-8"}
    return http("POST", f"{cluster.url()}/v1/namespaces/default/groups/g/reset", b"{}", plain | headers)
