"""Says how the running Python was built. Profile-guided optimisation and LTO make warm code 1.3 to 1.5 times faster.

`python bench/interpreter.py` prints it, and exits with 1 where the build is not known to have the first:
`.ci/bench-venv` asks each interpreter so. Nothing of Headrace is imported, since those interpreters do not have it.
"""

import platform
import sys
import sysconfig


def is_optimised() -> bool:
    """Tell whether this build used profile-guided optimisation.

    CPython's own configuration says so. Debian's build keeps it out of there, and is known by its install scheme.
    """
    asked = str(sysconfig.get_config_var("CONFIG_ARGS"))
    return "--enable-optimizations" in asked or "deb_system" in sysconfig.get_scheme_names()


def described() -> str:
    """Return the version, and how it was built."""
    built = "built with PGO" if is_optimised() else "built without PGO or LTO: warm code is 1.3 to 1.5 times slower"
    return f"Python {platform.python_version()}, {built}"


if __name__ == "__main__":
    sys.stdout.write(described() + "\n")
    sys.exit(not is_optimised())
