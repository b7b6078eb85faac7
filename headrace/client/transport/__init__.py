"""The way to the brokers: servers, metadata, requests, retries and sessions, for producers and consumers.

`discovery` finds the first URLs, `metadata` and `calls` know topics, URLs and requests, `retry` decides when to try
again. `brokers` carries requests with threads, `async_brokers` with tasks. `leader_session` is the pure side of a
session; sessions on threads are in `blocking_sessions`, those on an event loop in `async_brokers`.
"""
