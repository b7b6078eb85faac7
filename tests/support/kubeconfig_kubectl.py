"""An unmodified kubectl, run as a user runs it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import patient

_TIMEOUT_S = patient(60)


@dataclass(frozen=True, slots=True)
class Kubectl:
    program: str
    kubeconfig: Path
    namespace: str
    cache: Path

    def command(self, *arguments: str) -> list[str]:
        options = ["--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.cache), "-n", self.namespace]
        return [self.program, *options, *arguments]

    def run(self, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Whatever it says and however it ends."""
        return subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )

    def ok(self, *arguments: str, stdin: str = "") -> str:
        """What it prints; it must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, *arguments: str, stdin: str = "") -> str:
        """What it complains of; it must fail."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)} succeeded: {done.stdout}"
        return done.stderr
