"""`headrace completion`: the script that lets a shell complete command lines, and names of topics and groups for it.

The script calls `headrace` at every press of Tab (click answers, by `_HEADRACE_COMPLETE`), so names are asked for with
a short time limit and where it is cheapest: brokers for commands that talk to brokers, else the Kubernetes API.
"""

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

import click
from click.shell_completion import get_completion_class

from headrace.cli.commands import Command, examples
from headrace.cli.options import Where
from headrace.cli.servers import KubeOptions, with_kube

_PATIENCE_S = 2.0
_SERVER_OPTIONS = ("server", "ca_file")
_KUBE_OPTIONS = ("kubeconfig", "context", "namespace")


@examples(
    ("bash; in ~/.bashrc for every shell.", "source <(headrace completion bash)"),
    ("zsh, where ~/.zfunc is in fpath.", "headrace completion zsh > ~/.zfunc/_headrace"),
    ("fish.", "headrace completion fish > ~/.config/fish/completions/headrace.fish"),
)
@click.command(cls=Command, short_help="Print the script that completes command lines.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, files and the names of topics and groups."""
    complete = get_completion_class(shell)
    assert complete is not None, f"click completes for {shell}"
    root = click.get_current_context().find_root().command
    click.echo(complete(root, {}, "headrace", "_HEADRACE_COMPLETE").source())


def topic_names(options: Mapping[str, Any]) -> list[str]:
    """Return the topics of the namespace that the command line (as far as it is typed) names; none where no server
    answers."""
    try:
        if "server" in options:
            return _from_brokers(Where(*(options.get(name) for name in (*_SERVER_OPTIONS, *_KUBE_OPTIONS))))
        return _from_kubernetes(KubeOptions(*(options.get(name) for name in _KUBE_OPTIONS)))
    except Exception:  # The middle of a command line is no place for an error message, whatever it is.
        return []


def group_names(options: Mapping[str, Any]) -> list[str]:
    """Return the names of consumer groups alike; groups are resources, so the Kubernetes API is asked."""
    import asyncio

    from headrace.cli.resources import list_groups

    async def names(client: Any, namespace: str) -> list[str]:
        async with asyncio.timeout(_PATIENCE_S):
            return [group.metadata.name for group in await list_groups(client, namespace)]

    try:
        return with_kube(KubeOptions(*(options.get(name) for name in _KUBE_OPTIONS)), names)
    except Exception:  # No error message here either, as above.
        return []


def _from_brokers(where: Where) -> list[str]:
    from headrace.http2.blocking_transport import BlockingTransport

    found = where.find()
    path = f"/v1/namespaces/{quote(found.namespace, safe='')}/topics"
    with closing(BlockingTransport(found.server.ssl_context, connect_timeout_s=_PATIENCE_S)) as transport:
        url = found.server.urls[0] + path
        answer = transport.request("GET", url, headers=found.server.headers, timeout_s=_PATIENCE_S)
    return sorted(topic["name"] for topic in json.loads(answer.body)["topics"])


def _from_kubernetes(options: KubeOptions) -> list[str]:
    import asyncio

    from headrace.cli.resources import list_topics

    async def names(client: Any, namespace: str) -> list[str]:
        async with asyncio.timeout(_PATIENCE_S):
            return [topic.metadata.name for topic in await list_topics(client, namespace)]

    return with_kube(options, names)
