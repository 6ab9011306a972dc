"""Owns experiments over many runs: recorded template spaces, their replay, and the ablation."""
