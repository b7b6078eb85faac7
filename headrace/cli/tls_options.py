"""`--tls-cert-file`, `--tls-key-file` and `--tls-ca-file` of `headrace dev`: what its brokers are given."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace.dev.supervisor.layout import BrokerTls

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command gets them as `tls`, None where none is given."""

    @functools.wraps(command)
    def with_tls(**options: Any) -> Any:
        files = (options.pop(f"tls_{name}_file") for name in ("cert", "key", "ca"))
        return command(tls=_together(*(path and path.absolute() for path in files)), **options)

    for name, text in (
        ("ca", "Authority that the brokers trust in each other, PEM.  [default: the system's roots]"),
        ("key", "Its PEM key, without a passphrase."),
        ("cert", "Let the brokers speak TLS with this PEM certificate; it must cover 127.0.0.1."),
    ):
        with_tls = click.option(f"--tls-{name}-file", metavar="FILE", type=_FILE, help=text)(with_tls)
    return with_tls


def _together(certificate: Path | None, key: Path | None, authority: Path | None) -> BrokerTls | None:
    if certificate and key:
        return BrokerTls(certificate, key, authority)
    if certificate or key or authority:
        raise click.UsageError("TLS takes a certificate and its key: give both --tls-cert-file and --tls-key-file")
    return None
