"""Asking before something is changed that cannot be taken back."""

import sys

import click


def confirmed(question: str, yes: bool) -> bool:
    """Asks, where there is somebody to ask; `yes` is the answer of whoever gave --yes."""
    if yes:
        return True
    if not sys.stdin.isatty():
        return False
    return click.confirm(question, err=True)
