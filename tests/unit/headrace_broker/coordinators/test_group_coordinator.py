"""What coordinators write: batches that cost a broker's event loop next to nothing, whatever is in them."""

import subprocess
import sys

from headrace.core.groups.entries import Entry, GroupKey, GroupRecord, GroupValue, OffsetKey, OffsetRecord, OffsetValue
from headrace.core.records.columns import decode_batches
from headrace.core.types import Offset
from headrace_broker.coordinators.group_coordinator import OFFSETS_LOG
from tests.support.group_world import GROUP, part
from tests.support.patience import patient

_ALIVE = GroupRecord(GroupKey(GROUP), GroupValue())
_OFFSET = OffsetRecord(OffsetKey(GROUP, part("flights", 0)), OffsetValue(Offset(3)))
_GONE = OffsetRecord(OffsetKey(GROUP, part("flights", 1)), None)


def test_should_write_tombstones_beside_values() -> None:
    batches: list[list[Entry]] = [[_ALIVE], [_OFFSET, _ALIVE], [_GONE], [_GONE, _OFFSET, _ALIVE]]
    for entries in batches:
        batch = OFFSETS_LOG.encoded(entries)
        (decoded,) = decode_batches(b"".join(map(bytes, batch.buffers)))
        values = [record.value for _, record in decoded.rows()]
        assert [value is None for value in values] == [entry.value is None for entry in entries]


def test_should_load_nothing_big_for_the_first_tombstone() -> None:
    """pandas takes a second to load: the first member that leaves would hold up the whole broker."""
    program = (
        "import sys; import tests.unit.headrace_broker.coordinators.test_group_coordinator as here;"
        "here.OFFSETS_LOG.encoded([here._GONE, here._OFFSET]);"
        "print([name for name in ('pandas', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=patient(60)
    )
    assert done.stdout.strip() == "['pyarrow']"
