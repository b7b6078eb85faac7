"""Headrace: a distributed commit log for Kubernetes.

The SDK's names are loaded when they are first used, so that a broker, which imports `headrace.core` alone, never pays
for the client.
"""
