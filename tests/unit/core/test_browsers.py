"""What a browser says tells a page's request from a program's."""

import pytest

from headrace.core.browsers import host_name, is_loopback_name, why_foreign, why_not_here


@pytest.mark.parametrize(
    ("authority", "name"),
    [("127.0.0.1:9700", "127.0.0.1"), ("[::1]:9700", "::1"), ("LOCALHOST.", "localhost"), ("[", ""), ("", "")],
)
def test_should_find_the_name_in_a_host(authority: str, name: str) -> None:
    assert host_name(authority) == name


@pytest.mark.parametrize("host", ["", "localhost", "127.0.0.1:9700", "[::1]:9700", "127.3.2.1", "a.localhost:1", "own"])
def test_should_answer_to_names_of_this_machine(host: str) -> None:
    assert why_not_here(host, frozenset({"own"})) is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9700", "10.0.0.1", "localhost.evil.example", "["])
def test_should_answer_to_no_other_name(host: str) -> None:
    assert "answers to this machine alone" in (why_not_here(host) or "")
    assert not is_loopback_name(host_name(host))


@pytest.mark.parametrize(
    ("origin", "site", "said"),
    [
        (None, None, None),
        (None, "none", None),
        ("http://127.0.0.1:9700", "same-origin", None),
        ("HTTP://127.0.0.1:9700", None, None),
        ("http://127.0.0.1:3000", "same-site", "Origin 'http://127.0.0.1:3000'"),
        ("https://evil.example", "cross-site", "Origin 'https://evil.example'"),
        ("null", None, "Origin 'null'"),
        ("http://[", None, "Origin 'http://['"),
        (None, "Cross-Site", "Sec-Fetch-Site"),
    ],
)
def test_should_know_the_pages_of_others(origin: str | None, site: str | None, said: str | None) -> None:
    why = why_foreign("127.0.0.1:9700", origin, site)
    assert why is None if said is None else why is not None and why.startswith(said)
