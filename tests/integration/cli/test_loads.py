"""The modules that commands load, each run to its end in a process of its own (docs/adr/0021)."""

import shlex

import pytest

from tests.support.command import Headrace
from tests.support.loading import loaded_by

_PROGRAMS = ("headrace_broker", "headrace_operator", "kopf", "kubernetes", "cel")
_NEVER = (*_PROGRAMS, "rich", "pandas", "prometheus_client", "headrace.core.replication.events", "headrace.dev")
_API = (*_NEVER, "numpy", "pyarrow", "aiohttp.web", "headrace.core.control")
_RECORDS = (*_NEVER, "asyncio", "aiohttp", "yaml", "headrace.core.control", "headrace.kube")
_COORDINATORS = ("headrace.core.groups.group_machine", "headrace.core.groups.group", "headrace.core.groups.rebalancing")
_ALONE = ("headrace.core.groups.entries", "headrace.client.groups.member", *_COORDINATORS)
COMMANDS = {
    "topic list": (*_API, "headrace.client.transport.brokers", *_ALONE),
    "group list": (*_API, "headrace.client.transport.brokers", *_ALONE),
    "group describe {group}": (*_API, *_COORDINATORS),
    "consume {topic} -m 1": (*_RECORDS, *_ALONE),
    "consume {topic} --group {group} -m 1": (*_RECORDS, *_COORDINATORS),
    "produce {topic}": (*_RECORDS, "pyarrow.compute", *_ALONE),
}
COMPLETIONS = {
    "headrace top": ("asyncio", "aiohttp", "yaml", "numpy", "headrace.kube", "headrace.core.groups", *_NEVER),
    "headrace topic describe ": (*_API, *_ALONE),
    "headrace consume ": (*_RECORDS, "numpy", "pyarrow", *_ALONE),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_should_load_what_it_uses_when_a_command_runs(
    command: str, headrace: Headrace, topic: str, environment: dict[str, str]
) -> None:
    assert headrace("topic", "create", topic, "--partitions", "1").returncode == 0
    assert headrace("produce", topic, stdin="tea\n").returncode == 0
    assert headrace("consume", topic, "--group", topic, "-m", "1").returncode == 0
    arguments = shlex.split(command.format(topic=topic, group=topic))
    if arguments[:2] == ["consume", topic] and "--group" in arguments:
        assert headrace("produce", topic, stdin="coffee\n").returncode == 0
    loaded = loaded_by(f"from headrace.cli.main import run; assert run({arguments}) == 0", environment, "a\nb\nc\n")
    assert loaded.any_of(*COMMANDS[command]) == []
    assert loaded.certificates == 0


@pytest.mark.parametrize("typed", COMPLETIONS)
def test_should_load_what_it_uses_when_a_command_line_is_completed(
    typed: str, headrace: Headrace, topic: str, environment: dict[str, str]
) -> None:
    assert headrace("topic", "create", topic, "--partitions", "1").returncode == 0
    words = len(shlex.split(typed)) - (not typed.endswith(" "))
    asked = {"_HEADRACE_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(words)}
    loaded = loaded_by("from headrace.cli.main import run; run([])", environment | asked)
    assert loaded.any_of("headrace.cli.options", "click"), "it was asked"
    assert loaded.any_of(*COMPLETIONS[typed]) == []
