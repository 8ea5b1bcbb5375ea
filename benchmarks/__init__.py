"""Benchmarks behind docs/benchmarks.md: ratios against Spark's own operators in the same run, as a table and JSON each."""
