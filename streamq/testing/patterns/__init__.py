"""The oracle of patterns: it reads their syntax and computes match by match in plain Python, without the compiler."""
