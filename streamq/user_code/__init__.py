"""User code in queries: the decorators, a room each, the module that each of them makes (``module``), and the repository."""
