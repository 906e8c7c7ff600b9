from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import UserError
from simulator.scenario import load
from simulator.scenario.sources import MAX_BYTES
from tests.scenario.conftest import TINY, FakeCatalogue


def refusal(path: Path | str) -> str:
    with pytest.raises(UserError) as caught:
        load(path)
    found = str(caught.value)
    assert "\n" not in found
    assert found.isprintable()
    return found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\x7fELF\x02\x01\x00\x00", "binary"),
        ("name: tiny".encode("utf-16"), "binary"),
        (b"name: caf\xe9\n", ":1: is not UTF-8"),
        (b"- 1\n- 2\n", "expected a map of keys"),
        (b"just words", "expected a map of keys"),
        (b"[" * 100, "nested more than 50 deep"),
        (b"{a: " * 100, "nested more than 50 deep"),
        (b"a: 1\n---\nb: 1\n", "second document"),
    ],
)
def test_content_that_is_no_scenario(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(content)
    found = refusal(path)
    assert words in found
    assert found.startswith(str(path))


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(50 * 2**20)
    assert "too large for a scenario: 52,428,800 bytes" in refusal(path)


def test_a_pipe_without_end_is_read_to_the_limit() -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("no /dev/zero on this system")
    assert "too large" in refusal("/dev/zero")


def test_a_directory(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path)


def test_a_missing_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "missing.yaml")
    assert "no such file" in refusal("missing.yaml")
    (tmp_path / "file").write_text("a: 1")
    assert "no such file" in refusal(tmp_path / "file" / "below")


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TINY)

    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    assert refusal(path) == f"cannot read {path}: permission denied"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    assert "permission denied" in refusal(closed / "s.yaml")


@pytest.mark.parametrize("name", ["", " ", "a\0b", "a\nb", "x" * 5000, "a/" * 3000])
def test_names_that_are_no_names(name: str) -> None:
    assert len(refusal(name)) < 400


def test_a_link_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "loop.yaml"
    path.symlink_to(path)
    assert "cannot read" in refusal(path)


def test_an_unknown_name_has_its_nearest() -> None:
    assert "did you mean 'llama2-7b-fsdp2-8xa100'?" in refusal("llama2-7b-fsdp2-8xa10")


@pytest.mark.parametrize("source", [None, 5, ["a"], b"name: x"])
def test_sources_of_the_wrong_type(source: object) -> None:
    assert "a path, a name or a mapping" in refusal(source)  # type: ignore[arg-type]


def test_stdin(monkeypatch: pytest.MonkeyPatch, fake: FakeCatalogue) -> None:
    def feed(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))

    feed(TINY.encode())
    assert load("-", catalogue=fake).source == "stdin"
    feed(b"")
    assert refusal("-") == "stdin is empty"
    feed(b" " * (MAX_BYTES + 1))
    assert "stdin is too large" in refusal("-")


def ends_well(path: Path, content: bytes, fake: FakeCatalogue) -> None:
    path.write_bytes(content)
    try:
        load(path, catalogue=fake)
    except UserError as error:
        str(error).encode()


SIGNS = [*"{}[]:,-?|>&*!%@`#'\"\\ \n\t01aé\x00\x07\u2028\ud800\U0001f600"]
WORDS = [
    "-1",
    "1e9",
    "010",
    "null",
    "true",
    "on",
    "8:1",
    "*a",
    "&a",
    "<<",
    "!!int",
    "---",
    "80 GiB",
]
KEYS = ["name: ", "model: ", "training: ", "micro_batch: ", "  ", "\n  "]
FRAGMENTS = st.sampled_from(SIGNS + WORDS + KEYS)
DOCUMENTS = st.lists(FRAGMENTS, max_size=40).map(
    lambda parts: "".join(parts).encode("utf-8", "surrogatepass")
)


@given(content=st.one_of(st.binary(max_size=200), DOCUMENTS))
def test_any_bytes_end_in_a_scenario_or_a_user_error(
    tmp_path_factory: pytest.TempPathFactory, fake: FakeCatalogue, content: bytes
) -> None:
    ends_well(tmp_path_factory.getbasetemp() / "any.yaml", content, fake)


@given(
    start=st.integers(0, len(TINY)),
    length=st.integers(0, 20),
    middle=st.one_of(DOCUMENTS, st.binary(max_size=10)),
)
def test_a_damaged_scenario_ends_in_a_scenario_or_a_user_error(
    tmp_path_factory: pytest.TempPathFactory,
    fake: FakeCatalogue,
    start: int,
    length: int,
    middle: bytes,
) -> None:
    whole = TINY.encode()
    damaged = whole[:start] + middle + whole[start + length :]
    ends_well(tmp_path_factory.getbasetemp() / "damaged.yaml", damaged, fake)
