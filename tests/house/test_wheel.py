"""The wheel works alone: in an empty environment and an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def call(*command: str | Path, cwd: Path) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_carries_its_scenarios(tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    call(*pip, "wheel", ROOT, "--no-deps", "--wheel-dir", tmp_path, cwd=tmp_path)
    (wheel,) = tmp_path.glob("dryfit-*.whl")
    call(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python, empty = tmp_path / "venv" / "bin" / "python", tmp_path / "empty"
    empty.mkdir()
    call(python, "-m", "pip", "--disable-pip-version-check", "-q", "install", wheel, cwd=empty)
    dryfit = python.with_name("dryfit")
    listed = call(dryfit, "list", "scenarios", cwd=empty)
    packaged = {path.stem for path in (ROOT / "scenarios").glob("*.yaml")}
    assert packaged <= set(listed.split())
    assert "FITS" in call(dryfit, "run", "llama2-7b-fsdp2-8xa100", cwd=empty)
    assert list(empty.iterdir()) == []
