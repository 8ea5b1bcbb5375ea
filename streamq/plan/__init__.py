"""What all rooms speak of: nodes of a plan, expressions, types."""
