"""SparkSessions, and what streamq needs of the machine, the interpreters and the packages behind them."""
