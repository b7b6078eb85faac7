"""Headrace's Kubernetes resources as typed values: parsed once at the edge, written back as plain objects."""
