"""Staged commits: many writers' batches, written to an internal topic first, become visible by one decision."""
