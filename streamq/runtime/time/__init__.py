"""Time in a stream: progress and its rules, lateness, levels of consistency, endpoints, and the arithmetic of instants."""
