"""Answers over tables that do not grow: computed, shown, cut into micro-batches, and without the events that modules fail for."""
