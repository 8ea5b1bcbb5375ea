"""Calls of a user's code, and checks of what it gives; these modules ship to executors."""
