"""`import headrace` costs nothing until a name is used."""

import subprocess
import sys

import pytest

import headrace


def test_should_export_every_name_it_lists() -> None:
    assert set(dir(headrace)) == set(headrace.__all__)
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None


def test_should_say_so_when_a_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'headrace' has no attribute 'Consumr'"):
        _ = headrace.Consumr


def test_should_load_no_client_for_those_who_only_need_the_core() -> None:
    program = "import headrace.core.types, sys; sys.exit('headrace.client' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_should_load_no_pandas_where_nobody_hands_over_any() -> None:
    program = """
import sys
from headrace import Consumer, Producer
from headrace.client.producer.deliveries import ThreadRows
from headrace.client.consumed_records import columns
from headrace.client.record import TopicPartition
from headrace.core.records.columns import decode_batch, encode_batch
rows = ThreadRows(TopicPartition("t", 0), 0)
rows.append((b"key", b"value", 1, (("name", b"x"), ("name", None))))
rows.append((None, None, 1, ()))
batch = decode_batch(b"".join(encode_batch(rows.records())))
columns(rows.partition, batch)
Producer("http://127.0.0.1:1").close()
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
