"""Spark beside itself: `format("headrace")`, Spark's own Kafka source, and what Spark gives without a broker.

The same records are in Headrace (two brokers) and in Kafka (one process), and one Spark session with two threads reads
them in turns, so that all cases have the same JVM, warmed up by the same queries, and differ by seconds alone.

    cases ──> which source or sink does which work, with which options
    running ──> both servers, filled with the same records, and the process of the session
    job ──> what that process is told, and what it answers
    session ──> that process: rounds of all cases; queries ──> one of them; sources ──> what has no broker behind it
    costs ──> CPU time of a process and all that it started
    figures, targets, report ──> pure: medians, ratios, tables
"""
