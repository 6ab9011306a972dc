"""Owns what only a GPU needs: its clock, its facts, its memory, its lock, its signs of others."""
