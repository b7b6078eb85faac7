"""The rules of all tests: how Hypothesis looks for examples, deadlines that know the machine, signals that are heard.

Hypothesis has two profiles (`--hypothesis-profile NAME`); none of them looks at a clock:

    ordinary   the default: the same few examples each time, so that a run says the same of the same code
    search     other examples each time (`make search`): what it finds is written into a test as an example

A shell starts what it runs in the background deaf to SIGINT, nohup makes it deaf to SIGHUP, and whatever is started
there inherits that. A handler is not inherited: a run under nohup goes on without its terminal, and its children hear.
"""

import logging
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.support.patience import factor, patient

_CLOCKLESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
# PYTHONASYNCIODEBUG finds mistakes, and also says whatever took longer than 0.1 s, among what tests look at.
logging.getLogger("asyncio").addFilter(lambda record: "took %.3f seconds" not in str(record.msg))
settings.register_profile("ordinary", _CLOCKLESS, derandomize=True, database=None, max_examples=25)
settings.register_profile(
    "search",
    _CLOCKLESS,
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    max_examples=100,
    print_blob=True,
)
settings.load_profile("ordinary")


LONGEST = (
    "integration/groups/test_showing.py",
    "integration/docs/test_groups_page.py",
    "integration/faults/test_scenarios.py",
    "integration/docs/test_readme.py",
    "integration/docs/test_replication_page.py",
    "integration/operator/test_groups_manifest.py",
    "integration/cli/test_flights_demo.py",
    "integration/groups/test_api_away.py",
    "integration/dev/test_kills.py",
)
"""Files that begin before all others, so that at the end of a run no worker is alone with one of them."""


MARKED = {"core": Path(__file__).parent / "unit" / "core", "contract": Path(__file__).parent / "contract"}
"""Marks that all tests of a folder have."""


def pytest_configure(config: pytest.Config) -> None:
    """Measure the machine here, before workers start: they and all other processes are told what was found."""
    factor(workers=config.getoption("numprocesses", None) or 1)


def pytest_report_header() -> str:
    return f"patience: deadlines are {factor():.1f} times as long as they are written"


@pytest.hookimpl(tryfirst=True)  # Before -m chooses.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest, mark those of the core and the contract, and give every test a limit that can be kept.

    A limit is its own, or the one of pyproject.toml, made longer where this machine is slow.
    """
    for item in items:
        for mark in (name for name, folder in MARKED.items() if item.path.is_relative_to(folder)):
            item.add_marker(mark)
    turns = {str(Path(__file__).parent / name): turn for turn, name in enumerate(LONGEST)}
    assert all(Path(each).exists() for each in turns), "a file of LONGEST is not there any more"
    items.sort(key=lambda item: turns.get(str(item.path), len(turns)))
    if config.getoption("timeout") is not None:
        return  # Somebody said it on the command line.
    ordinary_s = float(config.getini("timeout"))
    for item in items:
        own = item.get_closest_marker("timeout")
        limit_s = patient(own.args[0] if own and own.args else ordinary_s)
        item.add_marker(pytest.mark.timeout(limit_s), append=False)
