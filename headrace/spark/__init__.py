"""The PySpark data source: `spark.read.format("headrace")`. Needs the extra `headrace[spark]`."""
