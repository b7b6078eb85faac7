"""The SDK: `Producer` and `Consumer`, which block, `AsyncProducer` and `AsyncConsumer`, all over `headrace.http2`.

`transport` finds brokers and carries requests and sessions to them; `producer` and `consumer` are built on it, and
`groups` adds a consumer's membership in a group. `record` has the types and checks that all of them share.

Decisions (batching, routing, retries, positions) are pure modules that take `now_ms` and a `Random`. Shells carry them
out. Each shell has two faces, one with threads and one with tasks (`async_...`), in files of their own: a program that
blocks never loads asyncio.
"""
