"""The consumer: what it is to read, where it stands in each partition, and how it reads ahead.

`options`, `positions`, `cursor`, `read_ahead`, `fetch_session` and `fetch_errands` decide, without I/O. `consumer` and
`fetcher` carry them out with threads, `async_consumer` and `async_fetcher` with tasks. The machinery of groups is in
`headrace.client.groups` and is loaded only by a consumer that has one.
"""
