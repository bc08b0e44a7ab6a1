"""Tables in Parquet files, read without Spark."""
