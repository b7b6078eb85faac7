"""What can go wrong in the lab, as one sentence with the remedy."""


class LabError(Exception):
    """Printed by `python -m e2e.lab` without a traceback; a test that meets it fails with the sentence."""
