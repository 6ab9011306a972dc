"""Owns the doors for people who train models: a step environment, and trajectories as data."""
