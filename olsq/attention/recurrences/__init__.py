"""Recurrences that rules share: products within chunks, a scan between them."""
