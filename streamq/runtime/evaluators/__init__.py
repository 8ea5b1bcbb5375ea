"""Evaluators: operators as pure functions of histories, in Arrow and numpy, hosted by the kernel ``recompute``."""
