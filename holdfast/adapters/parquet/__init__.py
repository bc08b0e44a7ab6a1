"""Tables in Parquet files, read and written without Spark."""
