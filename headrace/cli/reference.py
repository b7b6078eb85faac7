"""`docs/cli.md`, made of the commands themselves: `python -m headrace.cli.reference > docs/cli.md`.

The text here is what belongs to no single command; everything else comes from the commands' own help. A test compares
the page with what this makes, and another runs every example in it.
"""

import inspect
from collections.abc import Iterator

import click

from headrace.cli.commands import examples_of
from headrace.cli.main import headrace

_WHERE = frozenset({"server", "ca_file", "kubeconfig", "context", "namespace"})
"""Options of nearly every command, which the page explains once."""
_INTRODUCTION = """\
# The command line

This page is made from the commands: `python -m headrace.cli.reference > docs/cli.md`. `headrace COMMAND --help` shows
the same, and every example here is run by a test.

For those who know Kafka's tools, kcat or kubectl:

| there | here |
|---|---|
| `kafka-topics --create --topic orders --partitions 6` | `headrace topic create orders --partitions 6` |
| `kubectl get topics` | the same, or `headrace topic list` |
| `kafka-topics --describe --topic orders`, `kubectl describe topic orders` | `headrace topic describe orders` |
| `kafka-console-producer --topic orders`, `kcat -P -t orders` | `headrace produce orders` |
| `kafka-console-consumer --topic orders` | `headrace consume orders --from latest --follow -o value` |
| `kcat -C -e -t orders` (ends at the end) | `headrace consume orders -o value` |
| `kafka-console-consumer --topic orders --group billing` | `headrace consume orders --group billing --follow` |
| `kafka-consumer-groups --list`, `kubectl get consumergroups` | the same, or `headrace group list` |
| `kafka-consumer-groups --describe --group billing` | `headrace group describe billing` |
| `kafka-consumer-groups --reset-offsets --group billing --to-earliest` | `headrace group reset billing --to earliest` |
| `kafka-consumer-groups --delete --group billing` | `headrace group delete billing --yes` |
| `kafka-producer-perf-test`, `kafka-consumer-perf-test` | `headrace bench produce`, `headrace bench consume` |

## Where a command goes

Topics are Kubernetes resources, so `headrace topic` talks to a Kubernetes API: that of `--kubeconfig` and `--context`,
else that of the `headrace dev` that runs on this machine, else the current kubeconfig's. So are consumer groups, but
who is in one and how far it has read is known to brokers: `headrace group` talks to both, and says what it cannot tell
where one of them is away. Records go to brokers (`produce`, `consume`, `bench`, `cluster`), which are found in this
order:

1. `--server URL`: any broker, or several, separated by commas;
2. the Kubernetes API of `--kubeconfig` or `--context`, by its service proxy: nothing but the API server must be
   reachable, and the kubeconfig's credentials are all that is needed;
3. `HEADRACE_SERVER`, as `--server`;
4. the `headrace dev` that runs on this machine;
5. the Kubernetes API of the current kubeconfig, by its service proxy.

The namespace of a topic or group is `-n` (`--namespace`), else the context's where a kubeconfig decides, else
`default`. Brokers with `https` URLs are verified against the PEM bundle `--ca-file`, else `HEADRACE_CA_FILE`, else the
system's roots.

| variable | |
|---|---|
| `HEADRACE_SERVER` | URLs of brokers, as `--server` |
| `HEADRACE_CA_FILE` | PEM bundle that `https` brokers are verified against, as `--ca-file` |
| `HEADRACE_HOME` | where `headrace dev` keeps its things; default `~/.headrace` |
| `KUBECONFIG` | as kubectl reads it |
| `NO_COLOR` | no colour on terminals either |

## Output

Answers go to stdout, all else to stderr: progress, what keeps failing and is tried again, one sentence for an error. On
a terminal there is colour, and long work shows records, rate and how much is left; in pipes and files there is neither.
A reader that has enough (`| head`) is no error.

| exit code | |
|---|---|
| 0 | done |
| 1 | failed: a sentence on stderr says why, and what to do |
| 2 | wrong usage |
| 130 | Ctrl-C; 143 SIGTERM, 129 SIGHUP, where a command says how far it came |
"""


def reference() -> str:
    """Return the whole page."""
    context = click.Context(headrace, info_name="headrace")
    return _INTRODUCTION + "".join(_section(command, of) for command, of in commands(headrace, context))


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield `command` and all below it, each with its context; groups before their commands."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, f"{name} is listed and is not there"
            yield from commands(found, click.Context(found, parent=context, info_name=name))


def _section(command: click.Command, context: click.Context) -> str:
    parts = [f"\n## {context.command_path}\n", inspect.cleandoc(command.help or "")]
    if not isinstance(command, click.Group) or command.invoke_without_command:
        parts.append(f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```")
    parts += ["\n".join(_options(command, context))]
    shown = "\n".join(f"# {about}\n{line}" for about, line in examples_of(command))
    parts.append(f"```sh\n{shown}\n```")
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    help_option = command.get_help_option(context)
    options = [each for each in command.params if isinstance(each, click.Option) and each is not help_option]
    rows = [record for each in options if each.name not in _WHERE and (record := each.get_help_record(context))]
    shared = [f"`{each.opts[-1]}`" for each in options if each.name in _WHERE]
    if options:
        yield "| option | |\n|---|---|"
    for names, text in rows:
        yield f"| `{_cell(names)}` | {_cell(text)} |"
    if shared:
        yield f"| {', '.join(shared)} | [where the command goes](#where-a-command-goes) |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


if __name__ == "__main__":
    click.echo(reference(), nl=False)
