"""HTTP/2: a protocol engine without I/O, the client transports, and a server that answers with aiohttp's application.

`engine`, `receiving`, `connection_state`, `frames`, `hpack`, `header_fields`, `events` and `exchange` are pure.
`blocking_connection` and `blocking_transport` serve programs with threads, `async_transport` those with an event loop.
`server` and the modules that it imports load aiohttp; no client does.
"""
