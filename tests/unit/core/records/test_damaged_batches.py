"""No byte string makes the decoder or the splitter do anything but return batches or raise CorruptBatchError.

Random bytes alone would end at the first checksum. So valid batches are damaged as well, most of all where Arrow's
metadata and offsets stand, and sealed again with right checksums: the damage then reaches what lies behind them.
"""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import BatchTooLargeError, CorruptBatchError
from headrace.core.records.columns import check_body, columns_of, decode_batch, decode_batches
from headrace.core.records.header import Compression
from headrace.core.records.raw import split_batches
from headrace.core.types import RecordContent
from tests.support.batches import batch_of, encoded, sealed
from tests.support.examples import examples

RECORDS = [
    RecordContent(b"key", b"value" * 20, 5, (("a", b"1"), ("b", None))),
    RecordContent(None, None, 6),
    RecordContent(b"", b"x", 7, (("ü", b"zz"),)),
]
VALID = [
    *(encoded(columns_of(RECORDS * 20), compression) for compression in Compression),
    encoded(columns_of(RECORDS)),
    batch_of(b"a"),
    batch_of(None),
]
EDGES = [
    0,
    1,
    2,
    7,
    8,
    63,
    64,
    127,
    128,
    255,
    1 << 15,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    1 << 62,
    (1 << 63) - 1,
]
NUMBERS = st.sampled_from(EDGES) | st.sampled_from([(1 << 64) - edge for edge in EDGES]) | st.integers(0, (1 << 64) - 1)
CHANGES = st.lists(st.tuples(st.integers(0, 1023), st.sampled_from([1, 2, 4, 8]), NUMBERS), min_size=1, max_size=4)


def use(data: bytes) -> None:
    """All that anybody does with bytes that came from elsewhere; batches that come out are used to the last record."""
    with suppress(CorruptBatchError):
        list(decode_batch(data).rows())
    with suppress(CorruptBatchError):
        for decoded in decode_batches(data):
            list(decoded.rows())
    with suppress(CorruptBatchError, BatchTooLargeError):
        for batch in split_batches([data[:100], data[100:]], batch_bytes_max=1 << 16):
            check_body(batch)
            # What a broker lets pass, readers can read.
            list(decode_batch(b"".join(batch.buffers)).rows())


@given(data=st.binary(max_size=300))
def test_should_survive_random_bytes(data: bytes) -> None:
    use(data)


@given(data=st.binary(min_size=64, max_size=300))
def test_should_survive_random_bytes_when_checksums_are_right(data: bytes) -> None:
    use(sealed(data))


@examples(6)
@given(batch=st.sampled_from(VALID), changes=CHANGES)
def test_should_survive_damage_when_checksums_are_right(batch: bytes, changes: list[tuple[int, int, int]]) -> None:
    damaged = bytearray(batch)
    for place, width, number in changes:
        at = place % len(damaged)
        damaged[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")[: len(damaged) - at]
    use(sealed(damaged))


@given(batch=st.sampled_from(VALID), bit=st.integers(0, 1 << 14))
def test_should_survive_flipped_bits(batch: bytes, bit: int) -> None:
    damaged = bytearray(batch)
    damaged[bit // 8 % len(damaged)] ^= 1 << bit % 8
    use(bytes(damaged))
    use(sealed(damaged))


@given(batch=st.sampled_from(VALID), end=st.integers(0, 1 << 12), appended=st.binary(max_size=80))
def test_should_survive_truncation_and_what_comes_after(batch: bytes, end: int, appended: bytes) -> None:
    use(batch[: end % len(batch)])
    use(batch + appended)
    use(batch[: end % len(batch)] + batch)
