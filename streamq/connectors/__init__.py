"""Connectors: values that say where rows are, a room each; a source reads them, in-process, in a batch and as a stream."""
