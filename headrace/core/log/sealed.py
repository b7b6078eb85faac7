"""Small files that say whether they are whole: one line with a checksum, then text that a person can read.

    headrace recovery-point 1 5f0c1a2b
    812 512 65536 1767225600000

A log's checkpoints decide what is kept and who may be elected, so a flipped bit in one must be noticed, never believed.
The checksum is the CRC-32C of everything after the first line. Called by the codecs of this package.
"""

from collections.abc import Sequence

from crc32c import crc32c

_VERSION = "1"


class DamagedFileError(Exception):
    """The file is not what was written: cut short, changed, or of another kind. The message says which."""


def seal(kind: str, lines: Sequence[str]) -> bytes:
    """The file's content; `lines` hold no line breaks."""
    body = "".join(f"{line}\n" for line in lines).encode()
    return f"headrace {kind} {_VERSION} {crc32c(body):08x}\n".encode() + body


def unseal(kind: str, content: bytes) -> list[str]:
    """The lines that were sealed. Raises DamagedFileError."""
    head, _, body = content.partition(b"\n")
    expected = f"headrace {kind} {_VERSION} {crc32c(body):08x}".encode()
    if head != expected:
        raise DamagedFileError(f"its first line is {head[:80]!r}, the rest of it asks for {expected!r}")
    return body.decode().splitlines()


def unseal_integers(kind: str, content: bytes, count: int) -> list[int]:
    """The integers of a file that is one line of them. Raises DamagedFileError."""
    lines = unseal(kind, content)
    try:
        numbers = [int(word) for line in lines for word in line.split(" ")]
    except ValueError as error:
        raise DamagedFileError(f"{lines} are not numbers") from error
    if len(numbers) != count:
        raise DamagedFileError(f"it holds {len(numbers)} numbers, not {count}")
    return numbers
