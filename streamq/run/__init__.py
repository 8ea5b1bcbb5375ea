"""What runs a query: sessions, runs and their checkpoints, sinks, monitoring and diagnosis."""
