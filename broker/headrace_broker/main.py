"""The command `headrace-broker`: options in, one broker process, exit code out (0 stopped, 1 failed, 2 wrong usage)."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace.core.errors import HeadraceError
from headrace.core.limits import BUDGET_BYTES_MIN, DISK_BALLAST_BYTES, PROCESS_BYTES
from headrace.core.log.disk_quota import DiskLimits
from headrace.core.resources.metadata import DEFAULT_CLUSTER
from headrace.core.types import BrokerId
from headrace.core.units import UNLIMITED, parse_duration_ms, parse_limited_quantity_bytes, parse_quantity_bytes
from headrace_broker.settings import Settings, TlsFiles, TlsSecret
from headrace_broker.stop_signals import StopSignals

THREAD_SWITCH_US = 500
"""The time that a thread of a broker may compute while its event loop waits for its turn, instead of Python's own 5
ms."""
BROKER_MEMORY_BYTES_MIN = PROCESS_BYTES + 3 * BUDGET_BYTES_MIN
"""The smallest memory limit that a broker accepts: it cannot keep below it."""
HOUSEKEEPING_INTERVAL_MS_MIN = 10
"""The smallest interval that a broker accepts: below it a broker would do little else."""
DISK_QUOTA_BYTES_MIN = 4 * DISK_BALLAST_BYTES
"""A smaller quota would be full with what a broker writes for itself."""
REPLICATION_CATCH_UP_RATE_MIN = 64 << 10
"""The smallest rate in bytes a second: with less, catching up would never end."""


_FILE = click.Path(path_type=Path, dir_okay=False)
_LEVELS = ("debug", "info", "warning", "error")


def _read_by(
    parse: Callable[[str], int | None], least: int = 0, least_text: str = ""
) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """Return a parser of values as a resource would spell them, `least` or more; None where none is given."""

    def read(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
        try:
            value = None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        if value is not None and value < least:
            raise click.BadParameter(f"{text!r} is too little for a broker: give {least_text} or more")
        return value

    return read


def _mebibytes(count: int) -> str:
    return f"{count >> 20}Mi"


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--id", "broker", type=click.IntRange(min=0), required=True, help="Ordinal of this broker's pod.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), required=True, help="Data directory.")
@click.option("--cluster", default=DEFAULT_CLUSTER, help="Serve the topics of this cluster.")
@click.option("--namespace", default="", help="Of the brokers' Leases.", show_default="the kubeconfig's")
@click.option("--kubeconfig", default=None, help="Where the Kubernetes API is.", show_default="as kubectl finds it")
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=9701, help="Port to listen on; 0 picks a free one.")
@click.option(
    "--advertised-url", default="", help="Where others reach this broker.", show_default="http(s)://HOST:PORT"
)
@click.option("--zone", default="", help="Failure zone of this broker.")
@click.option(
    "--tls-cert-file", type=_FILE, help="Speak TLS with this PEM certificate; a new one is taken as it comes."
)
@click.option("--tls-key-file", type=_FILE, help="Its PEM key, without a passphrase.")
@click.option(
    "--tls-ca-file", type=_FILE, help="Whom to trust as other brokers, PEM.", show_default="the system's roots"
)
@click.option("--tls-secret", metavar="NAME", help="Take all three from this Secret: tls.crt, tls.key, ca.crt.")
@click.option(
    "--disk-quota",
    metavar="SIZE",
    default=UNLIMITED,
    callback=_read_by(parse_limited_quantity_bytes, DISK_QUOTA_BYTES_MIN, _mebibytes(DISK_QUOTA_BYTES_MIN)),
    help="Refuse records once this broker's files take so much, as in 100Gi.",
)
@click.option(
    "--disk-reserve",
    metavar="SIZE",
    callback=_read_by(parse_quantity_bytes),
    help="Refuse records once the volume has only so much free.",
    show_default="a twentieth of the volume, at most 1Gi",
)
@click.option(
    "--housekeeping-interval",
    "housekeeping_interval_ms",
    metavar="DURATION",
    default="60s",
    callback=_read_by(parse_duration_ms, HOUSEKEEPING_INTERVAL_MS_MIN, f"{HOUSEKEEPING_INTERVAL_MS_MIN}ms"),
    help="How often each partition is looked at for segments that retention is over for.",
)
@click.option(
    "--memory",
    "memory_bytes",
    metavar="SIZE",
    callback=_read_by(parse_quantity_bytes, BROKER_MEMORY_BYTES_MIN, _mebibytes(BROKER_MEMORY_BYTES_MIN)),
    help="Refuse requests rather than use more, as in 512Mi.",
    show_default="the container's limit, else no less than the machine has",
)
@click.option(
    "--catch-up-rate",
    metavar="SIZE",
    default=UNLIMITED,
    callback=_read_by(parse_limited_quantity_bytes, REPLICATION_CATCH_UP_RATE_MIN, "64Ki"),
    help="Send replicas that are far behind no more than this a second, as in 50Mi.",
)
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", help="Least severe events to log.")
def main(log_level: str, broker: int, **options: Any) -> None:
    """Run one Headrace broker until SIGTERM or Ctrl-C."""
    tls = _tls(*(options.pop(name) for name in ("tls_cert_file", "tls_key_file", "tls_ca_file", "tls_secret")))
    if tls is not None and options["advertised_url"].startswith("http:"):
        raise click.UsageError("--advertised-url must begin with https:// where the broker speaks TLS")
    logging.basicConfig(
        stream=sys.stderr, level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    disk_limits = DiskLimits(options.pop("disk_quota"), options.pop("disk_reserve"))
    settings = Settings(broker=BrokerId(broker), tls=tls, disk_limits=disk_limits, **options)
    # Threads read, encode JSON and compact; the event loop, on which everything depends, must not wait long for them.
    sys.setswitchinterval(THREAD_SWITCH_US / 1_000_000)
    try:
        with StopSignals.noted() as signals:
            _live(settings, signals)
    except HeadraceError as error:
        click.echo(f"headrace-broker: {error.message}", err=True)
        sys.exit(1)


def _live(settings: Settings, signals: StopSignals) -> None:
    """Run one life, and as many more as begin where one has ended. Raises HeadraceError."""
    # These modules are loaded here because they take a while, and this process can be asked to stop meanwhile.
    from headrace_broker.process import run

    again = False
    while not signals.asked and (again := asyncio.run(run(settings, signals, again=again))):
        # Another life begins, with an incarnation of its own: this one lets go of its files, whatever refers to them.
        gc.unfreeze()
        gc.collect()


def _tls(
    certificate: Path | None, key: Path | None, authority: Path | None, secret: str | None
) -> TlsFiles | TlsSecret | None:
    """Return the TLS source. Raises UsageError for options that do not go together."""
    if secret is not None:
        if certificate or key or authority:
            raise click.UsageError("--tls-secret stands for all of --tls-cert-file, --tls-key-file and --tls-ca-file")
        return TlsSecret(secret)
    if certificate is not None and key is not None:
        return TlsFiles(certificate, key, authority)
    if certificate or key or authority:
        given = "--tls-cert-file" if certificate else "--tls-key-file" if key else "--tls-ca-file"
        raise click.UsageError(f"{given} alone is not enough for TLS: give both --tls-cert-file and --tls-key-file")
    return None


if __name__ == "__main__":
    main()
