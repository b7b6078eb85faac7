"""The PySpark data source `headrace`: topics as batch and streaming DataFrames, without a jar.

`source` is what Spark finds; it parses options (`options`, `read_options`, `schema`) and makes the readers,
`batch_reader` and `stream_reader`, and the writers (`writing`). What is read is decided on the driver, purely:
`offsets` has a query's positions, where reading goes on, and the ranges that tasks read. `catalog` asks the brokers for
it. `tasks` run in Spark's Python workers: `range_reader` keeps clients in each process, `columns` makes Spark's columns
of batches. Everything that Spark pickles is a plain value; nothing connects before it is used.
"""

import os

from headrace.spark.java import warn_without_java

warn_without_java(os.environ)
