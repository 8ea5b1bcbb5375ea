"""Arrow's values as Spark has them: types, casts, expressions, equality and order; columns, and their text for people."""
