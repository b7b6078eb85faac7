"""The words of Kafka's own tools, rpk and kcat, and their counterparts here, for a person who types one of them.

click says that there is no such option or command, and guesses by likeness, which for these words leads elsewhere.
`main` calls `in_our_words` with each error of usage. Pure.
"""

import re
from collections.abc import Mapping
from typing import Final

import click

_TOPIC_ARGUMENT = "the topic is an argument: headrace {command} orders"
_A_COMMAND = "what is to be done is a command, not an option: see {path} --help"
_BY_KUBERNETES = "topics and groups are resources of Kubernetes: name the cluster with --kubeconfig or KUBECONFIG"
_SERVER = "a broker is named by --server or HEADRACE_SERVER, as in http://127.0.0.1:9701"
_COMMITTED = "consumers see committed records, and no others"
_ENDS = "consume ends when it has read all there is, and goes on with --follow"
_SET = "settings are given by --set, as in --set retention.time=7d"
_KEYS = "keys come from fields: --format jsonl --key-field id"
_RESETS = "where to is said by --to: earliest, latest, an offset or a time; or --offset orders:0=1200"
_PARTITIONS = 'partitions are added by: kubectl patch topic orders --type merge -p \'{"spec": {"partitions": 6}}\''
_SETTINGS = (
    "settings stand in the Topic: headrace topic describe orders shows them, kubectl edit topic orders changes them"
)

_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "consume": {
        **dict.fromkeys(("--topic", "-t"), _TOPIC_ARGUMENT),
        **dict.fromkeys(("--bootstrap-server", "--brokers", "-b"), _SERVER),
        "--from-beginning": "it begins there by itself, and in a group with --from earliest",
        "--offset": "where to begin is said by --from: earliest, latest, an offset or a time",
        **dict.fromkeys(("--max-messages", "-c", "--num"), "the number of records is --max-records, or -m"),
        **dict.fromkeys(("--timeout-ms", "-e"), _ENDS),
        "--isolation-level": _COMMITTED,
        "--consumer-group": "a group is named by --group",
        **dict.fromkeys(("--property", "--formatter-property"), "what is printed is said by -o: json, value or table"),
    },
    "produce": {
        **dict.fromkeys(("--topic", "-t"), _TOPIC_ARGUMENT),
        **dict.fromkeys(("--bootstrap-server", "--broker-list", "--brokers", "-b"), _SERVER),
        **dict.fromkeys(("--property", "--reader-property", "-K", "--key", "-k"), _KEYS),
    },
    "topic": dict.fromkeys(("--list", "--create", "--describe", "--delete", "--alter"), _A_COMMAND),
    "topic create": {
        **dict.fromkeys(("--config", "-c", "--topic-config"), _SET),
        "-p": "partitions are given by --partitions",
        "-r": "replicas are given by --replicas",
    },
    "group": dict.fromkeys(("--list", "--describe", "--delete", "--reset-offsets", "--group"), _A_COMMAND),
    "group reset": {
        **dict.fromkeys(("--to-earliest", "--to-latest", "--to-offset", "--to-datetime", "--by-duration"), _RESETS),
        "--execute": "it shows what it will do and asks, and does not ask with --yes",
        "--dry-run": "it shows what it will do and asks; answer n",
    },
}
_EVERYWHERE: Final[Mapping[str, str]] = {
    "--bootstrap-server": _BY_KUBERNETES,
    "--brokers": _BY_KUBERNETES,
    "--server": _BY_KUBERNETES,
    "--topic": "the name is an argument: {path} orders",
    "--group": "the name is an argument: {path} billing",
    "--list": _A_COMMAND,
}
_COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "": {
        **dict.fromkeys(("list", "create", "describe", "delete"), "say of what first, as in headrace topic list"),
        **dict.fromkeys(("broker", "brokers"), "headrace cluster status shows the brokers"),
        **dict.fromkeys(("config", "configs"), _SETTINGS),
        **dict.fromkeys(("start", "server", "up", "run", "container"), "headrace dev runs a cluster on this machine"),
        "version": "it is headrace --version",
        **dict.fromkeys(
            ("acl", "acls", "user"), "whoever reaches a broker may read and write; Topics have Kubernetes' RBAC"
        ),
    },
    "topic": {
        **dict.fromkeys(("alter", "add-partitions"), _PARTITIONS),
        **dict.fromkeys(("alter-config", "set", "config"), _SETTINGS),
        **dict.fromkeys(("produce", "consume"), "it is headrace {name} orders"),
    },
    "cluster": dict.fromkeys(("describe", "info", "health"), "it is headrace cluster status"),
    "dev": {
        "start": "headrace dev alone starts it, in the background with --detach",
        "logs": "the logs are files: ~/.headrace/dev/logs, or dev/logs in HEADRACE_HOME",
    },
}
_NO_COMMAND: Final = re.compile(r"No such command '([^']*)'")


def in_our_words(error: click.ClickException) -> click.ClickException:
    """Return the same error, with our word for it where it is another tool's word."""
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return error
    path = error.ctx.command_path
    command = path.partition(" ")[2]
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        hint = _OPTIONS.get(command, {}).get(name) or _EVERYWHERE.get(name)
        what = "option"
    elif found := _NO_COMMAND.match(error.message):
        name, what = found[1], "command"
        hint = _COMMANDS.get(command, {}).get(name)
    else:
        return error
    if hint is None:
        return error
    hint = hint.replace("{path}", path).replace("{command}", command).replace("{name}", name)
    return click.UsageError(f"No such {what} {name!r}: {hint}.", error.ctx)
