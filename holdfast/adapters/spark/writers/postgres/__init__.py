"""PostgreSQL through psycopg 3: `pip install 'holdfast-mq[postgres]'`, on the driver and on the executors."""

from holdfast.adapters.spark.writers.postgres.writer import PostgresWriter, postgres

__all__ = ["PostgresWriter", "postgres"]
