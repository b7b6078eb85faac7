"""Staged commits on a broker: who decides for writers, and what carries their batches into their partitions."""
