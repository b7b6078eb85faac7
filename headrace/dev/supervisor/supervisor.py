"""The supervisor: it brings `headrace dev` up, keeps it up, takes it down.

It lives as long as `supervise` runs: until it is cancelled, which is the ordinary way to stop it. The order follows
dependencies: the API, then operator and brokers together; on the way down brokers first, while the API can still take
the last writes of their Leases, then the operator, then the API. In between, `Child` starts again what dies,
`Controller` follows the API, and a `Successor` waits for the death of the supervisor itself.

It owns the command lines of all programs, and the kubeconfig that an unmodified kubectl takes.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from headrace.core.errors import HeadraceError
from headrace.core.limits import DEV_BROKERS_MAX
from headrace.core.resources.metadata import DEFAULT_CLUSTER
from headrace.dev.supervisor.child import Child, Fleet, Program
from headrace.dev.supervisor.controller import STATEFUL_SETS, Controller
from headrace.dev.supervisor.errors import PortInUseError, StartFailedError
from headrace.dev.supervisor.forking import ForkServer
from headrace.dev.supervisor.layout import (
    DEFAULT_BROKERS,
    LOOPBACK,
    BrokerTls,
    Layout,
    SupervisorOptions,
    is_port_free,
    last_lines,
    state_file,
)
from headrace.dev.supervisor.manifests import Manifest, bring_about, load_manifest
from headrace.dev.supervisor.state import BrokerProcessState, DevState, remove_state, write_state
from headrace.dev.supervisor.successor import Successor
from headrace.dev.supervisor.workload import NAME, NAMESPACE, STOP_GRACE_S, parse_stateful_set
from headrace.kube.client import KubeClient
from headrace.kube.errors import NotFoundError

_NAME = "headrace-dev"
_STOP_GRACE_S = 10.0
"""The grace of processes that wait for no other."""
_READY_TIMEOUT_S = 60
_START_ATTEMPTS = 3
"""The number of deaths before the first readiness that end the start: such a process will not recover by itself."""
_DYING_S = 10.0
"""The time that children of a killed supervisor get to free their ports."""
_LOOK_AGAIN_S = 0.1
_LOG_LINES = 15
_log = logging.getLogger("headrace.dev")


def write_kubeconfig(path: Path, api_url: str) -> None:
    """Write the kubeconfig, readable by its owner alone, as kubectl wants it, though there is no secret inside."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": {"server": api_url}}],
        "users": [{"name": _NAME, "user": {}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": "default"}}],
        "current-context": _NAME,
    }
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(json.dumps(document, indent=2) + "\n")  # JSON is YAML.


def api_program(layout: Layout) -> Program:
    return Program(
        name="the Kubernetes API",
        arguments=_module(
            "headrace.dev.api",
            *("--data", str(layout.api_data), "--host", LOOPBACK, "--port", str(layout.port)),
            *("--pod-logs", str(layout.broker_log("{ordinal}"))),
            *("--pod-ports", str(layout.broker_port(0)), str(layout.operator_port)),
        ),
        log=layout.log("api"),
        ready_url=f"{layout.api_url}/readyz",
    )


def operator_program(layout: Layout) -> Program:
    return Program(
        name="the operator",
        arguments=_module(
            "headrace_operator.main",
            *("--kubeconfig", str(layout.kubeconfig), "--cluster", DEFAULT_CLUSTER, "--namespace", NAMESPACE),
            *("--host", LOOPBACK, "--metrics-port", str(layout.operator_port)),
            # The next life of the operator takes over from a dead one at once.
            *("--identity", "headrace-dev"),
            *(["--tls-ca-file", str(layout.tls.authority)] if layout.tls and layout.tls.authority else []),
        ),
        log=layout.log("operator"),
        ready_url=f"http://{LOOPBACK}:{layout.operator_port}/healthz",
    )


def broker_program(layout: Layout, broker: int) -> Program:
    return Program(
        name=f"broker {broker}",
        arguments=_module(
            "headrace_broker.main",
            *("--id", str(broker), "--data", str(layout.broker_data(broker)), "--cluster", DEFAULT_CLUSTER),
            *("--namespace", NAMESPACE, "--kubeconfig", str(layout.kubeconfig)),
            *("--host", LOOPBACK, "--port", str(layout.broker_port(broker))),
            *("--advertised-url", layout.broker_url(broker)),
            *_tls_arguments(layout.tls),
        ),
        log=layout.broker_log(broker),
        ready_url=f"{layout.broker_url(broker)}/readyz",
    )


def _tls_arguments(tls: BrokerTls | None) -> list[str]:
    if tls is None:
        return []
    arguments = ["--tls-cert-file", str(tls.certificate), "--tls-key-file", str(tls.key)]
    return [*arguments, "--tls-ca-file", str(tls.authority)] if tls.authority else arguments


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name, *arguments)


async def supervise(
    options: SupervisorOptions,
    on_ready: Callable[[DevState], None],
    forks: ForkServer,
    successor: Successor | None = None,
) -> None:
    """Run everything until cancelled; `on_ready` is called once, when all of it serves. Raises HeadraceError.

    A supervisor that takes over has its successor from the start: it may be killed as its predecessor was. A first
    start that is killed has a starter that waits for it and reports it.
    """
    manifests = [manifest for path in options.manifests for manifest in load_manifest(path)]
    failure: HeadraceError | None = None
    async with asyncio.TaskGroup() as tasks:  # These are the tasks of the children, all of which end with stop().
        supervisor = _Supervisor(options, tasks, forks)
        keeping = tasks.create_task(forks.keep())
        try:
            if successor is not None and options.takes_over:
                _log.warning("the supervisor was killed: process %d takes over", os.getpid())
                await successor.start(tasks)
            state = await supervisor.start(manifests)
            if successor is not None and not options.takes_over:
                await successor.start(tasks)
            on_ready(state)
            await asyncio.Event().wait()
        except HeadraceError as error:  # The error is kept, since the group would wrap it.
            failure = error
        finally:
            if successor is not None:
                await successor.dismiss()
            keeping.cancel()
            await supervisor.stop()
    if failure is not None:
        raise failure


class _Supervisor:
    def __init__(self, options: SupervisorOptions, tasks: asyncio.TaskGroup, forks: ForkServer) -> None:
        self._options = options
        self._layout = options.layout
        self._tasks = tasks
        self._resources = contextlib.AsyncExitStack()
        self._api = Child(api_program(self._layout), self._changed, forks.run)
        self._operator = Child(operator_program(self._layout), self._changed, forks.run)
        self._fleet = Fleet(
            lambda broker: broker_program(self._layout, broker),
            self._layout.broker_port,
            tasks,
            self._changed,
            STOP_GRACE_S,
            forks.run,
        )
        self._controller: Controller | None = None
        self._controlling: asyncio.Task[None] | None = None

    async def start(self, manifests: list[Manifest]) -> DevState:
        """Start everything, apply the manifests, and write the state file. Raises HeadraceError."""
        layout = self._layout
        # A killed supervisor leaves its state behind, and processes that may still be dying.
        patience_s = _DYING_S if state_file(self._options.home).exists() else 0.0
        remove_state(self._options.home)
        await _require_free(layout.port, "the Kubernetes API", patience_s)
        await _require_free(layout.operator_port, "the operator", patience_s)
        write_kubeconfig(layout.kubeconfig, layout.api_url)
        self._tasks.create_task(self._api.run())
        await _ready(self._api)
        client = await self._resources.enter_async_context(await KubeClient.connect(kubeconfig=str(layout.kubeconfig)))
        brokers = await _wanted_brokers(client, self._options.brokers)
        for broker in range(min(brokers, DEV_BROKERS_MAX)):
            await _require_free(layout.broker_port(broker), f"broker {broker}", patience_s)
            self._fleet.add(broker)
        self._tasks.create_task(self._operator.run())
        await asyncio.gather(*(_ready(child) for child in (self._operator, *self._fleet.children.values())))
        self._controller = Controller(client, self._fleet)
        self._controlling = self._tasks.create_task(self._controller.maintain())
        await self._controller.settled.wait()
        await bring_about(client, manifests)
        self._changed()
        return self._state()

    async def stop(self) -> None:
        self._controller = None
        if self._controlling is not None:
            self._controlling.cancel()
        remove_state(self._options.home)
        await self._fleet.stop()
        await self._operator.stop(_STOP_GRACE_S)
        await self._resources.aclose()
        await self._api.stop(_STOP_GRACE_S)

    def _changed(self) -> None:
        """Write the state after a process came or went, once all of them are there."""
        if self._controller is None:
            return
        try:
            write_state(self._options.home, self._state())
        except OSError as error:  # The disk may be full, for example: no reason to stop everything.
            _log.warning("cannot write the state file in %s: %s", self._options.home, error)
        self._controller.wake()

    def _state(self) -> DevState:
        layout = self._layout
        return DevState(
            kubeconfig=str(layout.kubeconfig),
            api_url=layout.api_url,
            api_pid=self._api.pid,
            operator_pid=self._operator.pid,
            brokers=tuple(
                BrokerProcessState(broker, child.pid, layout.broker_url(broker), str(layout.broker_data(broker)))
                for broker, child in self._fleet.children.items()
            ),
        )


async def _wanted_brokers(client: KubeClient, asked: int | None) -> int:
    """Return the number in the StatefulSet of an earlier run, brought in line with what is asked for now."""
    try:
        known = parse_stateful_set(await client.get(STATEFUL_SETS, NAME, NAMESPACE)).replicas
    except NotFoundError:
        return asked or DEFAULT_BROKERS
    if asked is not None and asked != known:
        await client.patch(STATEFUL_SETS, NAME, NAMESPACE, {"spec": {"replicas": asked}})
    return asked or known


async def _require_free(port: int, who: str, patience_s: float) -> None:
    deadline = asyncio.get_running_loop().time() + patience_s
    while not is_port_free(port):
        if asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_LOOK_AGAIN_S)
            continue
        raise PortInUseError(
            f"port {port}, which {who} needs, is in use by another program:"
            " stop that, or choose another with --port (0 finds free ones)",
            port=port,
        )


async def _ready(child: Child) -> None:
    """Wait until the child is ready. Raises StartFailedError with the end of the log."""
    deadline = asyncio.get_running_loop().time() + _READY_TIMEOUT_S
    while not child.ready.is_set():
        if child.restarts >= _START_ATTEMPTS or asyncio.get_running_loop().time() > deadline:
            program = child.program
            raise StartFailedError(
                f"{program.name} does not start; its log, {program.log}, ends with:\n"
                f"{last_lines(program.log, _LOG_LINES)}"
            )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.ready.wait(), _LOOK_AGAIN_S)
