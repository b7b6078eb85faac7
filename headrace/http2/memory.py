"""The setting of glibc's allocator to keep large buffers: HTTP/2 bodies come and go in pieces of a megabyte.

By default glibc maps each large allocation anew and gives it back to the kernel at once, which costs more than
copying the bytes (the same code ran 3 to 8 times slower). And it gives each thread memory of its own, which the others
cannot use once it is free: with one interpreter lock they hardly ever compete for it, and share it here. A process
that moves bulk data calls `keep_large_buffers` once at its start: the broker does, and the SDK where it owns the
process.
"""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_KEPT_BYTES = 256 << 20
"""Free memory at the end of the heap that stays with the process. glibc allows at most 32 MiB for the other setting."""
_MAPPED_FROM_BYTES = 32 << 20


def keep_large_buffers() -> bool:
    """Set it, and return whether the C library took the settings; False where it is not glibc, and then nothing has
    changed."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES), (_M_TRIM_THRESHOLD, _KEPT_BYTES), (_M_ARENA_MAX, 1))
    return all(bool(mallopt(name, value)) for name, value in settings)
