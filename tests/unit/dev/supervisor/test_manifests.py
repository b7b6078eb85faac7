"""What `-f` accepts, and how it refuses the rest."""

from pathlib import Path

import pytest

from headrace.dev.supervisor.errors import InvalidManifestError
from headrace.dev.supervisor.manifests import load_manifest

TOPIC = "{apiVersion: headrace.io/v1alpha1, kind: Topic, metadata: {name: %s}, spec: {partitions: 1}}"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "topics.yaml"
    path.write_text(text)
    return path


def test_should_take_every_document_and_every_item_of_a_list(tmp_path: Path) -> None:
    items = f"{{kind: List, items: [{TOPIC % 'b'}, {TOPIC % 'c'}]}}"
    path = written(tmp_path, f"---\n{TOPIC % 'a'}\n---\n---\n{items}\n")
    assert [manifest.name for manifest in load_manifest(path)] == ["topic/a", "topic/b", "topic/c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1\n", r"document 1 is not a Kubernetes object but a list"),
        ("{apiVersion: v1, kind: Secret}", r"kind Secret of apiVersion v1 is none that -f applies: .*Topic"),
        ("{apiVersion: headrace.io/v1alpha1, kind: Topic}", r"document 1: metadata.name is missing"),
        (
            "a: [",
            r"cannot read the manifest \S+: line 1, column 5: expected the node content, but found '<stream end>'$",
        ),
        ("a: b: c", r"line 1, column 5: mapping values are not allowed here$"),
        ("a: *b", r"line 1, column 4: found undefined alias 'b'$"),
        ("a: \0", r"special characters are not allowed at character 4$"),
        ("{apiVersion: headrace.io/v1alpha1, kind: Topic, metadata: text}", r"document 1: metadata.name is missing"),
        ("{kind: List, items: {a: b}}", r"document 1: items is dict, must be a list of objects"),
        ("{kind: List, items: [3]}", r"document 1, item 1 is not a Kubernetes object but a int"),
    ],
)
def test_should_name_file_document_and_rule_when_a_manifest_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidManifestError, match=message) as raised:
        load_manifest(written(tmp_path, text))
    assert "\n" not in raised.value.message
