"""What runs on PySpark: events, the batch oracle, figures of traces. Nothing outside this room imports pyspark."""
