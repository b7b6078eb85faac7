"""The headers that go with records that were read."""

from headrace.core.types import Offset
from headrace_broker.fetch import Fetched


def fetch_headers(fetched: Fetched, next_offset: Offset) -> dict[str, str]:
    """`next_offset`: where the next request goes on; of a stream, where it begins."""
    end = fetched.high_watermark
    return {
        "Headrace-Next-Offset": str(next_offset),
        **({"Headrace-High-Watermark": str(end)} if end is not None else {}),
        "Headrace-Log-Start-Offset": str(fetched.log_start_offset),
        "Headrace-Leader-Epoch": str(fetched.leader_epoch),
        "Headrace-Topic-Uid": fetched.topic_uid,
    }
