"""Code of a user's own in queries: the decorators, a room each, what all of them make (``module``), and the repository."""
