"""Every ending is one of five exit codes, with a sentence and never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cli.app import VERBS
from simulator.errors import DeadlockError, UnsupportedError
from tests.cli.conftest import Dryfit

COMMAND = [sys.executable, "-c", "from simulator.cli import main; main()"]


def raising(error: BaseException):
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnsupportedError("not yet"), 2),
        (DeadlockError("rank 0 waits"), 3),
        (ZeroDivisionError("division by zero"), 3),
        (RecursionError("too deep"), 3),
        (MemoryError(), 3),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_errors_become_codes(
    dryfit: Dryfit, tiny: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    monkeypatch.setattr("simulator.run.run", raising(error))
    outcome = dryfit("run", tiny)
    assert outcome.code == code
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert outcome.err.strip().startswith("dryfit: ")


def test_a_bug_says_how_to_report_it(
    dryfit: Dryfit, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.run.run", raising(KeyError("slot")))
    plain, debug = dryfit("run", tiny), dryfit("run", tiny, "--debug")
    assert "--debug" in plain.err
    assert "report it" in plain.err
    assert plain.err.count("\n") == 1
    assert "Traceback" in debug.err
    assert debug.code == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "unknown verb 'rnu'; did you mean 'run'?"),
        (["explain", "x"], "unknown verb 'explain'"),
        (["run"], "Missing argument 'SCENARIO'"),
        (["run", "x", "--jsno"], "--json"),
        (["run", "llama2-7b-fsdp2-8xa10"], "did you mean 'llama2-7b-fsdp2-8xa100'?"),
        (["run", "no/such/file.yaml"], "no/such/file.yaml"),
        (["run", "llama2-7b-fsdp2-8xa100", "--steps", "1"], "--steps"),
        (["run", "llama2-7b-fsdp2-8xa100", "--set", "training.micro_bach=2"], "micro_batch"),
        (["run", "llama2-7b-fsdp2-8xa100", "--set", "nonsense"], "nonsense"),
        (["show", "--resolved"], "SCENARIO"),
        (["show", "x", "--curve", "--classes"], "one thing at a time"),
        (["show", "x", "--textbook"], "takes no SCENARIO"),
        (["show", "--textbook", "--parameters", "many"], "many"),
        (["list", "gpu"], "gpus"),
        (["run", "llama2-7b-fsdp2-8xa100", "--out", ""], "is empty"),
        (["validate", "no-such-file"], "no-such-file"),
    ],
)
def test_mistakes_of_the_user(dryfit: Dryfit, arguments: list[str], message: str) -> None:
    outcome = dryfit(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert message in outcome.err


def test_no_arguments_print_the_help_and_count_as_a_mistake(dryfit: Dryfit) -> None:
    outcome = dryfit()
    assert outcome.code == 2
    assert "Usage: dryfit" in outcome.err


def test_help_names_every_verb(dryfit: Dryfit) -> None:
    outcome = dryfit("--help")
    assert outcome.code == 0
    assert [
        line.split()[0] for line in outcome.out.split("Commands:\n")[1].splitlines()[: len(VERBS)]
    ] == [*VERBS]


def test_options_are_frozen() -> None:
    """A new option is a decision: it is added here too."""
    always = {"--debug", "--json"}
    assert {
        name: {o for p in verb.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")}
        - always
        for name, verb in VERBS.items()
    } == {
        "run": {
            *("--out", "--set", "--steps", "--fold", "--no-fold", "--memory-only"),
            *("--what-if", "--profile", "--allocator"),
        },
        "compare": {"--set", "--steps", "--memory-only"},
        "validate": set(),
        "check": {"--set"},
        "show": {
            *("--resolved", "--topology", "--program", "--classes", "--curve", "--textbook"),
            *("--out", "--parameters", "--set"),
        },
        "list": set(),
        "init": {"--force"},
        "schema": set(),
    }


def test_help_imports_nothing_but_click() -> None:
    heavy = "numpy pydantic yaml rich simpy networkx matplotlib simulator.run simulator.scenario"
    code = (
        "import sys; from simulator.cli.guard import run; run(['--help']);"
        f"sys.exit([name for name in {heavy.split()} if name in sys.modules] or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "list"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_said_in_a_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "dryfit: cannot write to stdout: No space left on device\n"


def test_a_closed_stdout_is_said_in_a_sentence() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "list", "gpus"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_an_interruption_is_130_and_no_traceback() -> None:
    code = (
        "import os, signal, simulator.run, simulator.cli.guard as guard;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # ignored in the background
        "simulator.run.run = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT);"
        "raise SystemExit(guard.run(['run', 'llama2-7b-fsdp2-8xa100']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "dryfit: interrupted"


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_leaves_no_passing_file_and_no_traceback(
    tiny: Path, tmp_path: Path, name: str, code: int
) -> None:
    script = (
        "import os, signal, sys, simulator.report.memory_plot as plot;"
        f"signal.signal(signal.{name}, signal.SIG_DFL);"  # nohup has it ignored
        "from simulator.cli import main;"
        f"plot.plot_memory = lambda *_, **__: os.kill(os.getpid(), signal.{name});"
        "main(sys.argv[1:])"
    )
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", script, "run", str(tiny), "--json", "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (code, "dryfit: stopped")
    assert [path.name for path in out.iterdir()] == ["result.json"]


def test_signals_are_given_back(dryfit: Dryfit) -> None:
    before = signal.getsignal(signal.SIGTERM)
    dryfit("list", "gpus")
    assert signal.getsignal(signal.SIGTERM) is before


def test_python_runs_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulator", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "dryfit")


def test_an_ascii_terminal_gets_question_marks_and_not_a_traceback() -> None:
    done = subprocess.run(
        [*COMMAND, "run", "llama2-7b-fsdp2-8xa100"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1)
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("dryfit va", "validate"),
        ("dryfit run llama2-7b-fsdp2-8", "llama2-7b-fsdp2-8xa100"),
        ("dryfit list gp", "gpus"),
        ("dryfit nonsense ", ""),
    ],
)
def test_completion(words: str, offered: str) -> None:
    environment = {
        "_DRYFIT_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = subprocess.run(
        COMMAND, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert offered in done.stdout
    assert done.stderr == ""
