"""Patterns as the oracle has them: by their syntax, match by match in plain Python, and by nothing of what the compiler makes."""
