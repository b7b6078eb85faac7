"""The command lines of everything that `headrace dev` runs."""

import sys

from headrace.core.resources.metadata import DEFAULT_CLUSTER
from headrace.dev.supervisor.child import Program
from headrace.dev.supervisor.layout import BrokerTls, Layout
from headrace.dev.supervisor.ports import LOOPBACK
from headrace.dev.supervisor.workload import NAMESPACE


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
