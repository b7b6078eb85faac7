"""The producer: how records become batches, and how batches reach the leaders of their partitions.

`writer` has the options, routes and partitioner that both faces share, `columns` and `batches` the records on their
way, `accumulator` the queues, `in_flight` the verdicts on outcomes, `produce_session` the channels to leaders, and
`send_errands` the way of each batch that is due: all of these are without I/O. `producer`, `sender` and
`deliveries` carry them out with threads, `async_producer` and `async_sender` with tasks. `staging` writes batches that
become visible by one decision.
"""
