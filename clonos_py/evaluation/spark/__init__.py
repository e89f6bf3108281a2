"""The parts that run on PySpark: events, the batch oracle, analysis of traces. No other room imports pyspark."""
