"""Weights of others read, and ours written in the formats of others."""
