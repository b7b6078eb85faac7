"""The way to the brokers: servers, metadata, requests, retries and sessions, for producers and consumers.

`discovery` finds the first URLs, `metadata` and `calls` know topics, URLs and requests, `retry` decides when to try
again. `errands` has every question to brokers as steps; `brokers` carries them out with threads, `async_brokers` with
tasks. `leader_session` is a session without I/O; both open its stream and tell it what comes.
"""
