"""Calls of user code, and checks of what it returns; these modules ship to executors."""
