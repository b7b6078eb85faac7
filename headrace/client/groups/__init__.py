"""A consumer's place in a group: who it is there, what it has been given, and what it commits.

`options` is what users ask for, `seat` all decisions (over `core.groups.membership`), `requests` what goes over HTTP.
`attendance` carries it out with threads for `Consumer`, `async_attendance` with tasks for `AsyncConsumer`.
"""
