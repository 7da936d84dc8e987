"""Runs queries of docs/fleet.md over the tables below ./fleet, and prints their rows as JSON.

Arguments: duckdb or spark, the document, the first lines of the queries.
"""

import json
import re
import sys

engine, document, *names = sys.argv[1:]
blocks = re.findall(r"```sql\n-- (.*?)\n(.*?)```", open(document).read(), re.DOTALL)
queries = dict(blocks)

if engine == "duckdb":
    import duckdb

    connection = duckdb.connect()
    connection.execute(queries["views"])

    def rows(query):
        answer = connection.execute(query)
        titles = [column[0] for column in answer.description]
        return [dict(zip(titles, row)) for row in answer.fetchall()]

else:
    from pyspark.sql import SparkSession

    options = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": "warehouse",
    }
    builder = SparkSession.builder.master("local[2]")
    for option, value in options.items():
        builder = builder.config(option, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for table in ["sites", "objects", "events"]:
        session.read.parquet("fleet/" + table).createOrReplaceTempView(table)

    def rows(query):
        return [row.asDict() for row in session.sql(query.strip().rstrip(";")).collect()]


def plain(value):
    """Sums are decimals in Spark."""
    return float(value) if value != int(value) else int(value)


json.dump({name: rows(queries[name]) for name in names}, sys.stdout, default=plain)
