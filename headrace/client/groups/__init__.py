"""A consumer's membership in a group: who it is there, which partitions it has been given, and what it commits.

`member` makes all decisions (over `core.groups.membership`), `plan` orders the steps, `assigned_partitions` keeps the
partitions, `requests` has what goes over HTTP, `coordinator_client` and `member_errands` say what is asked and when.
`blocking_member` carries it out with threads for `Consumer`, `async_member` with tasks for `AsyncConsumer`. A consumer
without a group loads none of it; the arguments are in `headrace.client.consumer.options`.
"""
