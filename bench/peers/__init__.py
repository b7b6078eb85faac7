"""Kafka 4.1 and its clients beside Headrace: one run, one machine, the same work in turns.

`python -m bench.peers` runs Kafka (one node, broker and controller in one process) and `headrace dev` with one broker,
each in a temporary folder and on loopback, and gives both the same jobs: every client in a process of its own, one
client at a time, in an order that turns around with each round. What comes out are medians of rounds, and ratios
between systems within one run: absolute figures say more about a machine than about any of them.

    cases ──> which client does which work, with which settings and how often: tables, and the only place to change them
    kafka, headrace ──> the servers: start, topics, process ids
    java_client, confluent_client, headrace_client ──> what a case runs in its own process
    measuring ──> one case: its output, CPU time and memory of the client and of the broker
    figures, targets, report ──> pure: medians, ratios, tables
    spark ──> the same beside Spark's Kafka source, in a package of its own; parts ──> both as one page
"""
