"""Looking inside: traces, shapes, counts, positions."""
