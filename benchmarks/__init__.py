"""What the figures of docs/figures.md come from: ratios against Spark's own in the same run; a table and JSON each."""
