"""Streams that are learned in pieces and put together again."""
