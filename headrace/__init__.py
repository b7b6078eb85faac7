"""Headrace: a distributed commit log for Kubernetes.

The SDK's names are loaded when they are first used (PEP 562), so that a broker, which imports `headrace.core` alone,
never pays for the client.

    from headrace import Consumer, Producer
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.consumer.async_consumer import AsyncConsumer
    from headrace.client.consumer.consumer import Consumer
    from headrace.client.producer.async_producer import AsyncProducer
    from headrace.client.producer.producer import Producer
    from headrace.client.record import BatchMetadata, GroupOffset, Record, RecordMetadata, TopicPartition
    from headrace.client.transport.discovery import Servers
    from headrace.core import errors
    from headrace.core.errors import HeadraceError

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "BatchMetadata",
    "Consumer",
    "GroupOffset",
    "HeadraceError",
    "Producer",
    "Record",
    "RecordMetadata",
    "Servers",
    "TopicPartition",
    "errors",
]

_HOMES = {
    "AsyncConsumer": "headrace.client.consumer.async_consumer",
    "AsyncProducer": "headrace.client.producer.async_producer",
    "BatchMetadata": "headrace.client.record",
    "Consumer": "headrace.client.consumer.consumer",
    "GroupOffset": "headrace.client.record",
    "HeadraceError": "headrace.core.errors",
    "Producer": "headrace.client.producer.producer",
    "Record": "headrace.client.record",
    "RecordMetadata": "headrace.client.record",
    "Servers": "headrace.client.transport.discovery",
    "TopicPartition": "headrace.client.record",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return importlib.import_module("headrace.core.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
