import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from headrace.core.errors import LocalError
from headrace.core.limits import TLS_FILE_BYTES_MAX
from headrace_operator.authority import Authority
from tests.support import certificates
from tests.support.certificates import Mount
from tests.support.waiting import eventually

OLD, NEW = (certificates.Authority() for _ in range(2))


def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path / "tls", {"ca.crt": OLD.pem})


def trusts(context: ssl.SSLContext, authority: certificates.Authority) -> bool:
    return context.get_ca_certs(binary_form=True) == authority.trust.get_ca_certs(binary_form=True)


@asynccontextmanager
async def kept_fresh(authority: Authority) -> AsyncIterator[list[ssl.SSLContext]]:
    """What it says to trust."""
    told: list[ssl.SSLContext] = []
    task = asyncio.create_task(authority.keep_fresh(told.append))
    try:
        yield told
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_should_follow_its_file_and_keep_what_it_has_while_that_is_broken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    mounted = mount(tmp_path)
    file = mounted.path("ca.crt")
    authority = Authority(str(file))
    first = authority.take_on()
    assert first is not None
    assert trusts(first, OLD)
    async with kept_fresh(authority) as told:
        mounted.put({"ca.crt": b"no certificate"})
        refused = f"the authority in use stays, because the new one is refused: CA file {file} holds no certificate"
        await eventually(lambda: refused in caplog.text, "it is refused")
        mounted.put({})
        await eventually(lambda: f"CA file {file} cannot be read: No such file" in caplog.text, "it is missed")
        assert told == []
        mounted.put({"ca.crt": NEW.pem})
        await eventually(lambda: bool(told), "the new one is trusted")
    assert [trusts(context, NEW) for context in told] == [True]
    assert f"checked against what CA file {file} holds now" in caplog.text


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"no certificate", "holds no certificate"), (b"-" * (TLS_FILE_BYTES_MAX + 1), "cannot be read: it is too large")],
)
def test_should_not_begin_with_a_file_that_is_of_no_use(content: bytes, says: str, tmp_path: Path) -> None:
    mounted = mount(tmp_path)
    mounted.put({"ca.crt": content})
    with pytest.raises(LocalError, match=says):
        Authority(str(mounted.path("ca.crt"))).take_on()


async def test_should_trust_the_roots_of_the_system_for_ever_where_no_file_is_given() -> None:
    authority = Authority(None)
    assert authority.take_on() is None  # a transport without a context trusts them
    async with kept_fresh(authority) as told:
        await asyncio.sleep(0)
    assert told == []
