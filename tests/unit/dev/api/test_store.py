"""The file behind the embedded API: its user's alone, for there are Secrets in it."""

from pathlib import Path

from headrace.dev.api.store import Store


def test_should_keep_its_files_to_its_user_also_those_that_were_not(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for name in ("state", "state-wal"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
    store = Store(path)
    assert {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}.keys() >= {"state"}
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    store.close()
