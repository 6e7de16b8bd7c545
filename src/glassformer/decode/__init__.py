"""Writing with a trained model."""
