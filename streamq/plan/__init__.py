"""The vocabulary of all rooms: nodes of a plan, expressions, types."""
