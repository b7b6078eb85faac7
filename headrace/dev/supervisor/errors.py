"""The reasons why `headrace dev` cannot do what it was asked, each a sentence with the remedy."""

from headrace.core.errors import LocalError


class DevError(LocalError):
    """The base of what `headrace dev` refuses or gives up on."""

    code = "Dev"


class NotRunningError(DevError):
    """No supervisor holds this home."""

    code = "DevNotRunning"


class AlreadyRunningError(DevError):
    """Another supervisor holds the home or the data directory; `pid` is its process."""

    code = "DevAlreadyRunning"


class PortInUseError(DevError):
    """Another program listens on a port that is needed; `port`."""

    code = "DevPortInUse"


class MissingExtraError(DevError):
    """Packages of the `local` extra are not installed; `packages`."""

    code = "DevMissingExtra"


class InvalidManifestError(DevError):
    """A file given with -f is not a list of Kubernetes objects, or the API refused one of them."""

    code = "DevInvalidManifest"


class StartFailedError(DevError):
    """A process did not become ready; the message has the end of its log."""

    code = "DevStartFailed"
