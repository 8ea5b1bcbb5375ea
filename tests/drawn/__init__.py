"""Random queries and patterns over random sources, by which the laws of streamq itself are tried."""
