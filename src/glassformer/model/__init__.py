"""The Transformer. Read it in this order: tap, dropout, cache, position, attention, layer, transformer."""
