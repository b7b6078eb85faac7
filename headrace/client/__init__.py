"""The SDK: `Producer` and `Consumer`, blocking, on the HTTP/2 transport of `headrace.http2`.

Decisions (batching, routing, retries, positions) are pure modules that take `now_ms` and a `Random`; `producer`,
`sender`, `consumer`, `fetcher` and `brokers` are the shells that carry them out.
"""
