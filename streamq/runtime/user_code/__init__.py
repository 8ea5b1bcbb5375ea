"""How code of a user's is called, and what it may give: what ships to executors."""
