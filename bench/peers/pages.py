"""Puts what was measured into a page of documentation, between two marks that stay there. Pure."""

from bench.peers.errors import PeersError

BEGIN = "<!-- make bench-peers writes from here -->"
END = "<!-- to here -->"


def put_into(page: str, tables: str) -> str:
    """Raises PeersError for a page without the marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise PeersError(f"the page has no lines {BEGIN!r} and {END!r} for the tables to stand between: add them")
    return f"{before}{BEGIN}\n\n{tables}\n{END}{after}"
