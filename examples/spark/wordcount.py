from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split

spark = SparkSession.builder.getOrCreate()
lines = spark.read.format("headrace").option("subscribe", "lines").load()
words = lines.select(explode(split(lines.value.cast("string"), " ")).alias("word"))
counts = words.groupBy("word").count().orderBy("count", "word", ascending=[False, True])
counts.show()
records = counts.selectExpr("word AS key", "CAST(count AS STRING) AS value")
records.write.format("headrace").option("topic", "words").mode("append").save()
