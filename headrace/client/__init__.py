"""The SDK: `Producer` and `Consumer`, which block, `AsyncProducer` and `AsyncConsumer`, all over `headrace.http2`.

Decisions (batching, routing, retries, positions) are pure modules that take `now_ms` and a `Random`. The shells that
carry them out come in pairs, one with threads, one with tasks: `brokers` and `async_brokers`, `sender` and
`async_sender`, `producer` and `async_producer`, `fetcher` and `async_fetcher`, `consumer` and `async_consumer`,
`deliveries` and `async_deliveries`. `writer` and `positions` are what each pair of classes has in common; `groups` is a
consumer's place in its group.
"""
