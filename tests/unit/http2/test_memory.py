"""The allocator's settings are taken where the C library is glibc."""

import platform

from headrace.http2.memory import keep_large_buffers


def test_should_say_whether_the_c_library_took_the_settings() -> None:
    assert keep_large_buffers() == (platform.libc_ver()[0] == "glibc")
