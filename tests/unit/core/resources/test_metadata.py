import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.resources.metadata import InvalidResourceError, Metadata, OwnerReference

words = st.text("abcdefghij-0123456789", min_size=1, max_size=10)
labels = st.dictionaries(words, words, max_size=3)
owners = st.builds(OwnerReference, words, words, words, words)
metadata = st.builds(
    Metadata,
    name=words,
    namespace=st.just("") | words,
    uid=st.just("") | words,
    resource_version=st.just("") | words,
    finalizers=st.lists(words, max_size=2).map(tuple),
    labels=labels,
    annotations=labels,
    owners=st.lists(owners, max_size=2).map(tuple),
)


@given(metadata)
def test_should_come_back_when_it_is_written_out(found: Metadata) -> None:
    assert Metadata.parse({"metadata": found.to_object()}) == found


def test_should_read_what_the_server_sets() -> None:
    found = Metadata.parse(
        {
            "metadata": {
                "name": "flights",
                "generation": 3,
                "creationTimestamp": "2026-11-21T09:00:00Z",
                "deletionTimestamp": "2026-11-21T09:01:00Z",
            }
        }
    )
    assert (found.generation, found.creation_timestamp, found.deletion_timestamp) == (
        3,
        "2026-11-21T09:00:00Z",
        "2026-11-21T09:01:00Z",
    )
    assert found.to_object() == {"name": "flights"}


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": {"namespace": "default"}}])
def test_should_refuse_an_object_without_a_name(obj: dict[str, object]) -> None:
    with pytest.raises(InvalidResourceError, match=r"metadata\.name is missing"):
        Metadata.parse(obj)


def test_should_mark_its_owner_as_the_controller() -> None:
    owner = OwnerReference("headrace.io/v1alpha1", "Topic", "flights", "uid-1")
    (written,) = Metadata("flights-0", owners=(owner,)).to_object()["ownerReferences"]
    assert written["controller"] is True
