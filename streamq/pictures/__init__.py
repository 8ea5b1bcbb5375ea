"""Pictures of histories: inputs, windows and results as bars on one axis of time, as SVG with a table beside it."""
