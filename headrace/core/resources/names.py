"""What may name a topic, or a group. The API server has the last word; who asks here can say what is wrong before that.

Pure. Called by clients and by the command line.
"""

import re

from headrace.core.limits import NAME_LENGTH_MAX

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def topic_name_problem(name: str) -> str | None:
    """Why Kubernetes would refuse a topic of this name, in a sentence, with one that would do; None: it would not."""
    return _name_problem(name, "topic")


def group_name_problem(name: str) -> str | None:
    """The same of a consumer group."""
    return _name_problem(name, "group")


def namespace_problem(name: str) -> str | None:
    """The same of a namespace."""
    return _name_problem(name, "namespace")


def _name_problem(name: str, kind: str) -> str | None:
    if _DNS_LABEL.fullmatch(name) and len(name) <= NAME_LENGTH_MAX:
        return None
    suggestion = re.sub(r"[^a-z0-9]+", "-", name.lower())[:NAME_LENGTH_MAX].strip("-")
    remedy = f"; try {suggestion}" if suggestion else ""
    return (
        f"{name!r} cannot name a {kind}, which is a Kubernetes resource, so that its name is a DNS label: lower-case"
        f" letters, digits and '-' in between, at most {NAME_LENGTH_MAX} characters{remedy}"
    )
