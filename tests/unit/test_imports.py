"""The modules that programs and clients load before they do anything: a start is its imports (docs/adr/0021)."""

import pytest

from tests.support.loading import loaded_by

_BOTH_LIBRARIES = ("kubernetes", "kubernetes_asyncio", "pykube", "pydantic", "requests")
_COMMAND_LINES = ("typer", "rich", "prompt_toolkit", "pygments", "cel.cli")
_ARRAYS = ("numpy", "pyarrow", "pandas")
_GROUP_MACHINERY = (
    "headrace.core.groups",
    "headrace.client.groups.member",
    "headrace.client.groups.blocking_member",
    "headrace.client.groups.async_member",
)
_REPLICA_MACHINERY = (
    "headrace.core.replication.events",
    "headrace.core.replication.replica",
    "headrace.core.resources.topic",
)

PROGRAMS = {
    "import headrace_broker.main, headrace_broker.process": (
        *_BOTH_LIBRARIES,
        *_COMMAND_LINES,
        *_ARRAYS,
        "kopf",
        "headrace.client",
        "headrace.dev",
        "headrace.cli",
    ),
    "import headrace_operator.main": (
        *_BOTH_LIBRARIES,
        *_COMMAND_LINES,
        *_ARRAYS,
        "headrace.client",
        "headrace.dev",
        "headrace.core.groups.group_machine",
    ),
    "import headrace.dev.api.__main__": (
        *_BOTH_LIBRARIES,
        *_COMMAND_LINES,
        *_ARRAYS,
        "kopf",
        "headrace.core.control",
        "headrace.core.groups",
    ),
    "import headrace.dev.supervisor.__main__": (
        *_BOTH_LIBRARIES,
        *_COMMAND_LINES,
        *_ARRAYS,
        "kopf",
        "cel",
        "aiohttp.web",
        "headrace.core.groups.group_machine",
    ),
}
CLIENTS: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("Producer", "Consumer"),
    ("asyncio", "aiohttp", "click", "pandas", "pyarrow.compute", *_GROUP_MACHINERY, *_REPLICA_MACHINERY),
)
CLIENTS |= dict.fromkeys(
    ("AsyncProducer", "AsyncConsumer"),
    ("aiohttp", "click", "pandas", "pyarrow.compute", *_GROUP_MACHINERY, *_REPLICA_MACHINERY),
)


@pytest.mark.parametrize("imports", PROGRAMS)
def test_should_load_what_it_uses_and_do_nothing_yet_when_a_program_is_imported(imports: str) -> None:
    loaded = loaded_by(imports)
    assert loaded.any_of(*PROGRAMS[imports]) == []
    assert loaded.certificates == 0
    assert loaded.threads == 1
    assert [name for name in loaded.seeds if name.startswith("headrace")] == []


@pytest.mark.parametrize("client", CLIENTS)
def test_should_load_what_it_uses_when_a_client_is_imported(client: str) -> None:
    loaded = loaded_by(f"from headrace import {client}")
    assert loaded.any_of(*CLIENTS[client]) == []
    assert [name for name in loaded.seeds if name.startswith("headrace")] == []


def test_should_load_no_command_when_help_lists_them() -> None:
    loaded = loaded_by("from headrace.cli.main import run; assert run(['--help']) == 0")
    assert loaded.any_of("asyncio", "aiohttp", "yaml", "ssl", *_ARRAYS, *_COMMAND_LINES, "headrace.client") == []


def test_should_still_find_the_libraries_when_they_are_asked_for_later() -> None:
    loaded = loaded_by(
        "import headrace.dev.api.cel_library, headrace_operator.kopf_watches; import cel.cli, kubernetes.aio.config"
    )
    assert loaded.any_of("typer", "kubernetes.aio.config")
