"""The PySpark data source `headrace`: topics as batch and streaming DataFrames, without a jar.

`source` is what Spark finds; it parses options (`options`, `read_options`, `subscription`, `bounds`, `schema`) and
makes the readers, `batch_reader` and `stream_reader`. What is read is decided on the driver, purely: `plans` and
`moves` (where reading begins and goes on), `ranges` (what a task reads), `offsets` (a stream's positions and their
JSON), `rates` (how much a trigger takes), `filters`. `catalog` asks the brokers for it. `tasks` run in Spark's Python
workers: `reading` keeps clients in each process, `columns` makes Spark's columns of batches, `json_values` typed ones.
Everything that Spark pickles is a plain value; nothing connects before it is used.
"""

import os

from headrace.spark.java import warn_without_java

warn_without_java(os.environ)
