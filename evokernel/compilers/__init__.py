"""Owns the way from source to artefact and structured diagnostics, one file per backend."""
