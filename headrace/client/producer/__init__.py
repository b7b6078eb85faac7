"""The producer: how records become batches, and how batches reach the leaders of their partitions.

`writer` has the options, routes and partitioner that both faces share, `columns` and `batches` the records on their
way, `accumulator` the queues, `in_flight` the verdicts on outcomes: all of these are pure. `producer`, `sender` and
`deliveries` carry them out with threads, `async_producer` and `async_sender` with tasks. `staging` writes batches that
become visible by one decision.
"""
