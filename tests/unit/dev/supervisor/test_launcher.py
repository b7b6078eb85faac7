"""What is missing is named together with the command that installs it."""

import pytest

from headrace.dev.supervisor.errors import MissingExtraError
from headrace.dev.supervisor.launcher import require_local_extra


def test_should_name_the_packages_and_the_pip_command_when_some_are_missing() -> None:
    with pytest.raises(MissingExtraError, match=r"\(no_such_package\).*pip install 'headrace\[local\]'"):
        require_local_extra(("json", "no_such_package"))


def test_should_be_content_when_all_are_there() -> None:
    require_local_extra()
