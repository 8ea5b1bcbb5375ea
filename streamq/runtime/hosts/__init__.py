"""The hosts of kernels, on Spark and in-process: stages, the map sides before them, and what travels between them."""
