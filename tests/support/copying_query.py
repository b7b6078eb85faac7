"""A program of its own: a query that copies one topic to another, exactly once, on executors that can be killed.

python -m tests.support.copying_query SERVER FROM TO CHECKPOINT
"""

import os
import sys

from pyspark.sql import SparkSession


def main(server: str, source: str, target: str, checkpoint: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local-cluster[2,1,768]")
        .appName("copy")
        .config("spark.executor.memory", "768m")
        .config("spark.driver.memory", "768m")
        .config("spark.ui.enabled", "false")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "100ms")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.quantile", "0.1")
        .config("spark.task.maxFailures", "20")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(sys.path))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    options = {"server": server, "timeoutMs": "60000"}
    records = spark.readStream.format("headrace").options(**options).option("subscribe", source)
    stream = records.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 400).load()
    sink = stream.selectExpr("key", "value").repartition(3).writeStream.format("headrace").options(**options)
    sink.option("topic", target).option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
