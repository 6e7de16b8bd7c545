"""The explorer: one page on which a person sees every number of their own model."""
