"""Lines come whole whatever the reads are, and nobody waits for a second line to see the first."""

import io
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.line_formats import lines_of
from headrace.core.limits import JSON_LINE_BYTES_MAX


class Reads(io.BytesIO):
    """Gives what it holds in pieces of chosen sizes."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        super().__init__(content)
        self._sizes = sizes

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(self._sizes.pop() if self._sizes else size)


@given(st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r\n", b"\r"])), st.lists(st.integers(1, 5)))
def test_should_give_the_lines_of_a_file(parts: list[bytes], sizes: list[int]) -> None:
    content = b"".join(parts)
    assert list(lines_of(Reads(content, sizes), lambda: None)) == io.BytesIO(content).readlines()


def test_should_hand_out_what_there_is_before_it_waits_for_more() -> None:
    reader, writer = os.pipe()
    heard: list[bytes] = []
    waits: list[list[bytes]] = []

    def wait() -> None:
        waits.append(list(heard))
        os.write(writer, b"ke\n") if len(waits) == 1 else os.close(writer)

    os.write(writer, b"tea\ncoffee\nca")
    with open(reader, "rb") as file:
        for line in lines_of(file, wait):
            heard.append(line)  # noqa: PERF402 - to be seen while it grows
    assert heard == [b"tea\n", b"coffee\n", b"cake\n"]
    assert waits == [heard[:2], heard]


def test_should_take_a_file_for_something_that_never_waits(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"tea\n" * 200_000)
    waits: list[None] = []
    with (tmp_path / "lines").open("rb") as file:
        assert sum(1 for _ in lines_of(file, lambda: waits.append(None))) == 200_000
    assert not waits


def test_should_not_gather_a_line_without_end() -> None:
    first, *_ = lines_of(io.BytesIO(b"x" * (JSON_LINE_BYTES_MAX + (1 << 20))), lambda: None)
    assert JSON_LINE_BYTES_MAX < len(first) <= JSON_LINE_BYTES_MAX + (1 << 20)
