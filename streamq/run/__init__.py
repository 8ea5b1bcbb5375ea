"""Running queries: sessions, runs and their checkpoints, sinks, monitoring and diagnosis."""
