"""A consumer's membership in a group: its identity there, the partitions that it has been given, and its commits.

`member` makes all decisions (over `core.groups.membership`), `plan` orders the steps, `assigned_partitions` keeps the
partitions, `requests` has the HTTP requests, `coordinator_client` and `member_errands` say what is asked and when.
`blocking_member` carries it out with threads for `Consumer`, `async_member` with tasks for `AsyncConsumer`. A consumer
without a group loads none of it; the arguments are in `headrace.client.consumer.options`.
"""
