"""CONTRIBUTING.md, followed to the letter on a copy of the project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()

Run = Callable[..., str]


def block_after(words: str) -> str:
    """The first fenced block after ``words``."""
    found = re.search(r"```\w+\n(.*?)```", TEXT[TEXT.index(words) :], re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ("simulator", "topologies", "scenarios", "tests"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    return tmp_path


@pytest.fixture
def run(copy: Path) -> Run:
    def call(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


CLI = ("-c", "import sys; from simulator.cli import main; sys.exit(main())")
SCENARIO = "llama2-7b-fsdp2-8xa100"


def test_a_gpu_is_one_file(copy: Path, run: Run) -> None:
    path = "topologies/gpus/my-gpu.yaml"
    (copy / path).write_text(block_after(f"`{path}`"))
    assert "my-gpu" in run(*CLI, "list", "gpus")
    booked = ("--set", "cluster.topology=dgx-h100", "--set", "cluster.gpu=my-gpu")
    result = json.loads(run(*CLI, "run", SCENARIO, "--json", *booked))
    assert result["memory"]["device_bytes"] == int(139.75 * 2**30)


def test_a_topology_is_one_file(copy: Path, run: Run) -> None:
    path = "topologies/my-cluster.yaml"
    (copy / path).write_text(block_after(f"`{path}`"))
    assert "my-cluster" in run(*CLI, "list", "topologies")
    booked = ("--set", "cluster.topology=my-cluster", "--set", "cluster.nodes=2")
    result = json.loads(run(*CLI, "run", SCENARIO, "--json", *booked))
    assert result["world_size"] == 8
    assert result["ranks"][4]["device"] == "node1/gpu0"
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/hardware/test_builders.py")


def test_a_collective_is_one_file_and_one_line(copy: Path, run: Run) -> None:
    path = "simulator/timing/collectives/direct.py"
    before = json.loads(run(*CLI, "run", SCENARIO, "--json"))
    (copy / path).write_text(block_after(f"`{path}`"))
    joined = copy / "simulator/timing/collectives/__init__.py"
    text = joined.read_text()
    rest = TEXT[TEXT.index("And a line in each place") :]
    imported, member = re.findall(r"```python\n(.*?)```", rest, re.DOTALL)[:2]
    text = text.replace(
        "from simulator.timing.collectives.ring",
        imported + "from simulator.timing.collectives.ring",
    )
    text = text.replace('    "ring": Ring(),\n', '    "ring": Ring(),\n' + member)
    joined.write_text(text)
    assert "direct" in run(*CLI, "list", "collectives")
    judged = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/judges/test_collectives.py",
        "-k", "direct",
    )  # fmt: skip
    assert "passed" in judged
    after = json.loads(run(*CLI, "run", SCENARIO, "--json"))
    assert after["step_time_s"] < before["step_time_s"]
    assert after["memory"] == before["memory"]
