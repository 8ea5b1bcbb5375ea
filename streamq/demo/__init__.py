"""``python -m streamq.demo``: questions to a Spark event log, read as a stream of edges, in batch and streaming."""
