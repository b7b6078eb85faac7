"""All that a topic holds just now, as an independent reader sees it."""

from headrace.client.consumer import Consumer


def values_in(server: str, topic: str) -> list[bytes]:
    with Consumer(topic, server=server) as consumer:
        return [record.value or b"" for record in consumer.records(follow=False)]
