"""The flow of events: what every operator of a query receives and sends, and which events cause which rows."""
