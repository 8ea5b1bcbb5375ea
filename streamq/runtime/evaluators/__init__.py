"""Operators as pure functions of histories, in Arrow and numpy: what the kernel ``recompute`` hosts."""
