"""The brokers' Pods and their StatefulSet, as far as the operator may see them.

Neither is needed: without them broker deaths are known from Leases alone, and nobody is known to leave. So a refusal,
a kind that the API server does not have, or an object that cannot be read is told once, and is news of nobody.
"""

import logging
from collections.abc import Awaitable
from typing import TypeVar

from headrace.core.resources.kubernetes_objects import POD_SELECTOR, BrokerPod, BrokerSet
from headrace.kube.client import KubeClient
from headrace.kube.errors import ForbiddenError, NotFoundError, UnreadableObjectError
from headrace.kube.resource import PODS, STATEFUL_SETS

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Workload:
    def __init__(self, client: KubeClient, namespace: str, stateful_set: str) -> None:
        self._client = client
        self._namespace = namespace
        self._stateful_set = stateful_set
        self._told = ""
        """What was told last."""
        self.unreadable = 0
        """Of the objects that were asked for last."""

    async def pods(self) -> tuple[BrokerPod, ...] | None:
        """Those of the brokers; None where nobody tells: that is no death of any. Raises ApiError."""
        listed = await self._if_allowed(self._client.list(PODS, namespace=self._namespace, label_selector=POD_SELECTOR))
        if listed is None:
            return None
        self.unreadable += listed.left_out
        return tuple(pod for pod in listed.items if pod.stateful_set == self._stateful_set)

    async def broker_set(self) -> BrokerSet | None:
        """None where there is none. Raises ApiError."""
        return await self._if_allowed(self._client.get(STATEFUL_SETS, self._stateful_set, self._namespace))

    async def _if_allowed(self, answer: Awaitable[T]) -> T | None:
        try:
            return await answer
        except NotFoundError:
            return None
        except (ForbiddenError, UnreadableObjectError) as error:
            self.unreadable += isinstance(error, UnreadableObjectError)
            if str(error) != self._told:
                _log.error("without sight of the brokers' Pods and StatefulSet: %s", error)
            self._told = str(error)
            return None
