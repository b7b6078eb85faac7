"""The `headrace` command: click for the grammar, rich for people, plain lines for pipes.

Each command is one module, loaded when it is first used, so that `headrace --version` never pays for Arrow. Commands
raise typed errors; `headrace.cli.main` alone turns them into one line and an exit code.
"""
