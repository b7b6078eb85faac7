"""Is everything there that `headrace dev` starts? Asked before anything else, so that the answer is a sentence."""

from importlib.util import find_spec

from headrace.dev.supervisor.errors import MissingExtraError

LOCAL_EXTRA_MODULES = ("aiohttp", "cel", "jsonpatch", "kopf", "kubernetes", "prometheus_client")


def require_local_extra(modules: tuple[str, ...] = LOCAL_EXTRA_MODULES) -> None:
    """Raises MissingExtraError with the pip command."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"headrace dev needs packages that are not installed ({', '.join(missing)});"
            " install them with: pip install 'headrace[local]'",
            packages=missing,
        )
