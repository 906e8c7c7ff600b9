from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Dryfit

SETTINGS = ("--set", "training.micro_batch=512", "--set", "training.seq_len=65536")


def test_float8_is_refused_where_the_gpu_has_none(dryfit: Dryfit, tiny: Path) -> None:
    refused = dryfit("run", tiny, "--set", "training.precision={compute: bf16, fp8: tensorwise}")
    assert refused.code == 2
    assert "a100-sxm-80gb multiplies no float8" in refused.err


def test_the_summary_begins_with_the_verdict(dryfit: Dryfit, tiny: Path) -> None:
    outcome = dryfit("run", tiny)
    assert outcome.code == 0
    assert outcome.out.startswith("tiny\n")
    assert "FITS" in outcome.out
    assert outcome.err == ""


def test_json_is_one_object_of_the_contract(dryfit: Dryfit, tiny: Path) -> None:
    found = dryfit("run", tiny, "--json").json
    assert found["schema"] == "dryfit.result/1"
    assert list(found)[:5] == ["schema", "scenario", "seed", "world_size", "step_time_s"]
    assert (
        sum(found["memory"]["breakdown_at_peak"].values())
        == (found["memory"]["peak_allocated_bytes"])
    )
    assert sum(v for v in found["time"].values() if v) == pytest.approx(found["step_time_s"])


def test_what_does_not_fit_is_a_no_and_still_an_answer(dryfit: Dryfit, tiny: Path) -> None:
    words, data = dryfit("run", tiny, *SETTINGS), dryfit("run", tiny, *SETTINGS, "--json")
    assert (words.code, data.code) == (1, 1)
    assert "DOES NOT FIT" in words.out
    assert data.json["memory"]["fits"] is False
    assert words.err == ""


def test_memory_only_has_no_times(dryfit: Dryfit, tiny: Path) -> None:
    found = dryfit("run", tiny, "--memory-only", "--json").json
    assert found["step_time_s"] is None
    assert found["time"] == dict.fromkeys(found["time"])
    assert found["memory"]["peak_allocated_bytes"] > 0


@pytest.mark.parametrize(
    "change",
    ["cluster.nodes=1", "parallelism.dp_shard=4", "parallelism.fsdp.reshard_after_forward=2"],
)
def test_folded_and_unfolded_agree(dryfit: Dryfit, tiny: Path, change: str) -> None:
    folded = dryfit("run", tiny, "--json", "--set", change).json
    unfolded = dryfit("run", tiny, "--no-fold", "--json", "--set", change).json
    assert (folded["engine"]["classes"], unfolded["engine"]["classes"]) == (1, 8)
    assert folded["memory"] == unfolded["memory"]
    assert folded["time"] == unfolded["time"]


def test_a_scenario_on_stdin(tiny: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from simulator.cli import main; main()", "run", "-", "--json"],
        input=tiny.read_bytes(),
        capture_output=True,
        check=False,
    )
    assert json.loads(done.stdout)["scenario"] == "tiny"


def test_out_leaves_the_result_and_the_pictures(dryfit: Dryfit, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    outcome = dryfit("run", tiny, "--json", "--out", out)
    assert sorted(path.name for path in out.iterdir()) == [
        "memory.png",
        "result.json",
        "timeline.png",
    ]
    assert json.loads((out / "result.json").read_text()) == outcome.json
    for picture in out.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    dryfit("run", tiny, "--out", out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_nothing_that_this_run_did_not_write_is_touched(
    dryfit: Dryfit, tiny: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "timeline.png").write_bytes(b"old")
    (out / "notes.txt").write_text("mine")
    outcome = dryfit("run", tiny, "--memory-only", "--out", out)
    names = ["memory.png", "notes.txt", "result.json", "timeline.png"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert (out / "timeline.png").read_bytes() == b"old"
    assert "timeline.png is of an earlier run" in outcome.err


def test_a_file_in_the_way_of_out(dryfit: Dryfit, tiny: Path) -> None:
    for place in (tiny, tiny / "below"):
        outcome = dryfit("run", tiny, "--out", place)
        assert outcome.code == 2
        assert outcome.out == ""
        assert "--out" in outcome.err


def test_a_picture_that_fails_leaves_no_half_file(
    dryfit: Dryfit, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(trace: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("simulator.report.memory_plot.plot_memory", full)
    outcome = dryfit("run", tiny, "--out", tmp_path / "out")
    assert outcome.code == 2
    assert "no space left" in outcome.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["result.json"]


def test_profile_goes_to_stderr_alone(dryfit: Dryfit, tiny: Path) -> None:
    plain, profiled = dryfit("run", tiny, "--json"), dryfit("run", tiny, "--json", "--profile")
    assert profiled.out == plain.out
    assert "simulation" in profiled.err


def test_it_runs_where_matplotlib_and_rich_are_missing(tiny: Path) -> None:
    code = (
        "import sys; sys.modules.update(matplotlib=None, rich=None);"
        "from simulator.cli.guard import run; sys.exit(run(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "run", str(tiny)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_a_terminal_gets_colour_unless_it_says_no(tiny: Path, no_colour: str) -> None:
    command = [sys.executable, "-c", "from simulator.cli import main; main()", "run", str(tiny)]
    leader, follower = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": no_colour, "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=follower, env=environment) as process:
        os.close(follower)
        text = b""
        try:
            while chunk := os.read(leader, 65536):
                text += chunk
        except OSError:  # the other side is closed
            pass
    os.close(leader)
    assert process.returncode == 0
    assert (b"\x1b[" in text) is not bool(no_colour)


def test_what_a_killed_run_left_is_removed(dryfit: Dryfit, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    old, fresh = (out / f".dryfit-{digit * 16}.png" for digit in "01")
    for path in (old, fresh):
        path.touch()
    os.utime(old, (0, 0))
    assert dryfit("run", tiny, "--memory-only", "--out", out).code == 0
    assert not old.exists()
    assert fresh.exists()


def test_a_key_is_set_once(dryfit: Dryfit, tiny: Path) -> None:
    twice = ("--set", "training.seq_len=64", "--set", "training.seq_len=128")
    outcome = dryfit("run", tiny, *twice)
    assert outcome.code == 2
    assert "'training.seq_len' is given 2 times" in outcome.err
