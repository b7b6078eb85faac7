"""All that a topic holds just now, as an independent reader sees it."""

from urllib.request import Request, urlopen

from headrace.client.consumer.consumer import Consumer
from headrace.core.records.header import Compression
from headrace.core.records.raw import split_replicated


def values_in(server: str, topic: str) -> list[bytes]:
    with Consumer(topic, server=server) as consumer:
        return [record.value or b"" for record in consumer.records(follow=False)]


def compressions_in(server: str, topic: str, partitions: int) -> set[Compression]:
    """Of the first batches of each partition."""
    found = set()
    for number in range(partitions):
        path = f"/v1/namespaces/default/topics/{topic}/partitions/{number}/records?offset=0&maxBytes=1000000"
        with urlopen(Request(server + path, headers={"Accept": "application/vnd.headrace.batch"})) as answer:
            found |= {batch.header.compression for batch in split_replicated([answer.read()])}
    return found
