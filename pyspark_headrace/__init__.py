"""Spark finds data sources in modules named `pyspark_*`; `headrace.spark` holds what this one does."""

from headrace.spark.source import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
