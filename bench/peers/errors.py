"""What keeps the comparison from being made, said with its remedy."""


class PeersError(Exception):
    """One sentence for a person."""
