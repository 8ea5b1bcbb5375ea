"""Partial results of aggregates: how each is made, merged and, if it is exact, subtracted, in Arrow and as SQL."""
