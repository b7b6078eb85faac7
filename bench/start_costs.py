"""Measures what starts cost: processor seconds of programs until they are ready, and of short commands to their end.

Nearly all of it is imports. Processor seconds (user and system, with children) hardly change with what else the machine
does. Byte code is at hand, as it is wherever pip installed Headrace, whatever this process's environment says.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from bench.processes import Cluster, cluster

StartCosts: TypeAlias = Mapping[str, list[float]]
"""Processor seconds of each start, by what was started."""
NOTHING = "python -c pass"
_TOPIC, _GROUP = "bench-starts", "bench-starts"
_HEADRACE = ("-c", "from headrace.cli.main import main; main()")
"""The command, which `headrace` runs likewise, wherever that script may be."""


class _Command(NamedTuple):
    arguments: tuple[str, ...]
    """The arguments that Python gets."""
    variables: Mapping[str, str] = {}
    stdin: bytes = b""


def measure(folder: Path, starts: int) -> StartCosts:
    """One start of everything is not counted: it leaves the byte code and warms up the page cache."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    rounds = [_round(folder / str(number), environment) for number in range(starts + 1)][1:]
    return {what: [each[what] for each in rounds] for what in rounds[0]}


def _round(folder: Path, environment: dict[str, str]) -> dict[str, float]:
    folder.mkdir(parents=True)
    with cluster(folder, environment) as processes:
        costs = processes.ready_costs()
        broker = processes.start_broker()
        programs = {
            "broker": broker.ready_processor_s,
            "operator": costs.operator_s,
            "embedded API": costs.api_s,
        }
        processes.create_topic(_TOPIC, 1)
        processes.wait_led(_TOPIC)
        commands = {what: _cost(command, environment) for what, command in _commands(processes, broker.url).items()}
        broker.stop()
    return {NOTHING: commands.pop(NOTHING), **programs, **commands}


def _commands(processes: Cluster, server: str) -> dict[str, _Command]:
    """The commands, each after the one that makes what it looks for."""
    at_brokers, at_api = ("--server", server), ("--kubeconfig", str(processes.kubeconfig))
    grouped = ("consume", _TOPIC, "--group", _GROUP, "-m", "1")
    tab = {"_HEADRACE_COMPLETE": "bash_complete", "COMP_WORDS": "headrace topic describe ", "COMP_CWORD": "3"}
    return {
        NOTHING: _Command(("-c", "pass")),
        "from headrace import Producer": _Command(("-c", "from headrace import Producer")),
        "from headrace import Consumer": _Command(("-c", "from headrace import Consumer")),
        "from headrace import AsyncConsumer": _Command(("-c", "from headrace import AsyncConsumer")),
        "headrace --help": _Command((*_HEADRACE, "--help")),
        "headrace topic list": _Command((*_HEADRACE, "topic", "list", *at_api)),
        "headrace produce, three lines": _Command((*_HEADRACE, "produce", _TOPIC, *at_brokers), stdin=b"a\nb\nc\n"),
        "headrace consume -m 1": _Command((*_HEADRACE, "consume", _TOPIC, "-m", "1", *at_brokers)),
        "headrace consume --group -m 1": _Command((*_HEADRACE, *grouped, *at_brokers)),
        "headrace group describe": _Command((*_HEADRACE, "group", "describe", _GROUP, *at_api)),
        "a TAB after headrace topic describe": _Command(_HEADRACE, {**tab, "KUBECONFIG": at_api[1]}),
    }


def _cost(command: _Command, environment: Mapping[str, str]) -> float:
    """Raises RuntimeError where it fails."""
    process = subprocess.Popen(
        [sys.executable, *command.arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**environment, **command.variables},
    )
    assert process.stdin is not None, "a pipe, as asked for"
    assert process.stdout is not None, "a pipe, as asked for"
    process.stdin.write(command.stdin)
    process.stdin.close()
    said = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    # wait4, unlike Popen.wait, says what the process took; Popen must know that nothing is left to wait for.
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command.arguments)} ended with exit code {process.returncode}: {said.decode()}")
    return usage.ru_utime + usage.ru_stime
