"""Levels of consistency compared over recorded input."""
