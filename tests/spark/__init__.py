"""Tests on Apache Spark: `make spark-test`."""
