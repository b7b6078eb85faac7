"""Spark finds data sources in modules named `pyspark_*`; `headrace.spark` holds what this one does."""
