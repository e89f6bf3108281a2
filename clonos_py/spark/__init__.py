"""What runs on PySpark: making events, the batch oracle. Nothing outside this room imports pyspark."""
