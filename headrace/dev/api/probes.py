"""What is no resource: version, health, access reviews. Anybody may do anything here: it is one person's machine."""

from headrace.dev.api.documents import decode
from headrace.dev.api.objects import Object
from headrace.dev.api.status import StatusError
from headrace.http2.aiohttp_web import web

_VERSION: Object = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+headrace-dev",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
"""The Kubernetes whose behaviour this API follows; the suffix says that it is not one."""
_REVIEW_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def add_probes(app: web.Application) -> None:
    app.router.add_get("/version", _version)
    for path in ("/healthz", "/livez", "/readyz"):
        app.router.add_get(path, _healthy)
    app.router.add_post(_REVIEW_PATH, _review)


async def _version(request: web.Request) -> web.Response:
    return web.json_response(_VERSION)


async def _healthy(request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _review(request: web.Request) -> web.Response:
    """Yes, whatever was asked. kubectl asks in protobuf, which need not be read to say so."""
    try:
        asked = decode(await request.read(), request.content_type).value
    except StatusError:
        asked = {}
    spec = asked.get("spec", {}) if isinstance(asked, dict) else {}
    answer = {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
        "status": {"allowed": True},
    }
    return web.json_response(answer, status=201)
