"""`python -m headrace.dev.supervisor OPTIONS PIPE`: the supervisor that `detached.start_detached` starts."""

import contextlib
import json
import logging
import os
import sys
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.dev.supervisor.options import Options
from headrace.dev.supervisor.process import run


def main(arguments: str, writing: int) -> int:
    with os.fdopen(writing, "w") as answers:

        def tell(answer: dict[str, Any]) -> None:
            # The starter may be gone by now: that must not take the supervisor with it.
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(answer), file=answers, flush=True)

        try:
            run(Options.from_json(arguments), lambda state: tell({"ready": state.to_json()}), logging.StreamHandler())
        except HeadraceError as error:
            tell({"error": str(error)})
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
