"""Logs of internal topics as coordinators live by them: what groups and staged commits have in common."""
