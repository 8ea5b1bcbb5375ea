"""How a run stands: its micro-batches, its sources, what it waits for, and the views that show it."""
