"""Rows of a run: those of its sources, and those into and out of an operator."""
