"""Examples and batches."""
