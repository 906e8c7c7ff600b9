from __future__ import annotations

from typing import Any

import pytest

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Origin, origin_of, plain
from simulator.documents.yaml_reader import MAX_DEPTH, MAX_NODES, read_yaml
from simulator.errors import ScenarioError


def read(text: str) -> Any:
    mistakes = Mistakes()
    tree = read_yaml(text, "s.yaml", mistakes)
    mistakes.raise_any()
    return plain(tree)


def refusal(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("1.5", 1.5),
        ("-3", -3),
        ("0", 0),
        ("8:1", "8:1"),
        ("12:30:45", "12:30:45"),
        ("on", "on"),
        ("no", "no"),
        ("True", "True"),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("'010'", "010"),
        ('"true"', "true"),
        ("! 5", "5"),
        ("=", "="),
    ],
)
def test_scalars_follow_yaml_1_2_without_traps(text: str, value: object) -> None:
    found = read(f"k: {text}")["k"]
    assert found == value
    assert type(found) is type(value)


def test_a_leading_zero_is_refused() -> None:
    assert "s.yaml:1:4: n: '010' has a leading zero" in refusal("n: 010")


def test_duplicate_keys_name_both_lines() -> None:
    text = "a: {b: 1}\nc: 2\na: 3\n"
    assert refusal(text) == "s.yaml:3:1: duplicate key 'a', first on line 1"


def test_all_that_can_still_be_read_is_reported_together() -> None:
    assert refusal("a: 010\na: 020\nb: {c: 1, c: 2}").splitlines() == [
        "s.yaml:1:4: a: '010' has a leading zero, which some readers take for octal; "
        "write it without, or quote it if it is a name",
        "s.yaml:2:1: duplicate key 'a', first on line 1",
        "s.yaml:2:4: a: '020' has a leading zero, which some readers take for octal; "
        "write it without, or quote it if it is a name",
        "s.yaml:3:11: b: duplicate key 'c', first on line 3",
    ]


def test_every_value_and_key_has_its_place() -> None:
    tree = read_yaml("a:\n  b: [1,\n      2]\n", "s.yaml", Mistakes())
    assert isinstance(tree, Map)
    assert origin_of(tree, ("a", "b")) == Origin("s.yaml", 2, 6)
    assert origin_of(tree, ("a", "b"), key=True) == Origin("s.yaml", 2, 3)
    assert origin_of(tree, ("a", "missing")) == Origin("s.yaml", 2, 3)


def test_an_alias_is_a_copy() -> None:
    assert read("a: &x {k: 1}\nb: *x\n") == {"a": {"k": 1}, "b": {"k": 1}}


def test_an_alias_bomb_is_refused() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    assert "values, aliases expanded" in refusal("\n".join(rows))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("&a [*a]", "names no anchor that is complete"),
        ("a: *nowhere", "names no anchor"),
        ("!!python/object/apply:os.system ['true']", "no tag is"),
        ("a: !!int '5'", "no tag is"),
        ("a: 1\n---\nb: 2", "second document"),
        ("? [a]\n: 1", "a key must be a single word"),
        ("a: &x {k: 1}\nb: {<<: *x}", "merge keys"),
        ('a: "\\UFFFFFFFF"', "out of range"),
        ('a: "\\uD800"', "surrogate"),
        ("a: \x07", "U+0007"),
        ("%YAML 1." + "9" * 5000 + "\n---\na: 1", "out of range"),
        ("a: " + "9" * 5000, "more than 40 digits"),
        ("a: 1e999", "too large for a number"),
        ("a: [1", "is no YAML"),
        ("a: b: c", "is no YAML"),
        ("\ta: 1", "is no YAML"),
        ("# nothing", "is empty"),
        ("[" * (MAX_DEPTH + 1), f"nested more than {MAX_DEPTH} deep"),
        ("[" + "1," * (MAX_NODES + 1) + "]", "values, aliases expanded"),
    ],
)
def test_what_is_refused_is_refused_in_one_line(text: str, words: str) -> None:
    found = refusal(text)
    assert words in found
    assert found.startswith("s.yaml")
    assert "\n" not in found
    assert found.isprintable()
