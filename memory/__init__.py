"""Owns what was learned: experiences, their values and their retrieval."""
