"""``python -m streamq.demo``: query a Spark event log, read as a stream of edges, in batch and as a stream."""
