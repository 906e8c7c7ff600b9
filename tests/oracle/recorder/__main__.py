"""The commands: ``list``, ``ask``, ``saved``, ``compiled``, ``record``, ``merge``, ``whole``."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable

from recorder import report, session, store
from recorder.case import Case
from recorder.cases import MERGED
from recorder.cases.compiled import COMPILED
from recorder.choosing import MistakeError, changed, matching
from recorder.fake.library import ShimError


def main(arguments: list[str]) -> int:
    """Run a command; the exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        command: Callable[[argparse.Namespace], int] = parsed.command
        return command(parsed)
    except (MistakeError, ShimError, ValueError) as error:
        print(f"recorder: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="recorder", description="What real PyTorch allocates.")
    verbs = parser.add_subparsers(required=True)
    listed = verbs.add_parser("list", help="the cases, and in what each is unusual")
    listed.add_argument("patterns", nargs="*", help="names, with * and ?")
    listed.set_defaults(command=_list)
    for name, command, what in (
        ("ask", _ask, "play a case and print what it held"),
        ("saved", _saved, "what a block of the case's model keeps for backward"),
    ):
        asked = verbs.add_parser(name, help=what)
        asked.add_argument("case", help="a name of `list`, or - for the usual case")
        asked.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="fields of the case")
        asked.set_defaults(command=command)
    verbs.choices["ask"].add_argument(
        "--events", action="store_true", help="every allocation and free too"
    )
    recorded = verbs.add_parser("record", help="play cases and lay the recordings by")
    recorded.add_argument("patterns", nargs="*", help="names, with * and ?")
    recorded.add_argument("--all", action="store_true", help="every case: half an hour")
    recorded.set_defaults(command=_record)
    compiled = verbs.add_parser("compiled", help="what torch.compile keeps, into tests/data")
    compiled.set_defaults(command=_compiled)
    merged = verbs.add_parser("merge", help="take the recordings laid by into tests/data")
    merged.set_defaults(command=_merge)
    whole = verbs.add_parser("whole", help="trace whole small models into tests/data")
    whole.set_defaults(command=_whole)
    return parser


def _list(parsed: argparse.Namespace) -> int:
    usual = Case().config
    for name, case in matching(parsed.patterns or ["*"]).items():
        unusual = {k: v for k, v in case.config.items() if usual.get(k) != v}
        print(name, " ".join(f"{key}={value}" for key, value in unusual.items()))
    return 0


def _saved(parsed: argparse.Namespace) -> int:
    case = changed(parsed.case, parsed.changes)
    session.start()
    for line in session.saved(case).lines():
        print(line)
    return 0


def _ask(parsed: argparse.Namespace) -> int:
    case = changed(parsed.case, parsed.changes)
    session.start()
    for line in report.report(session.record(case), events=parsed.events):
        print(line)
    return 0


def _record(parsed: argparse.Namespace) -> int:
    patterns = ["*"] if parsed.all else parsed.patterns
    if not patterns:
        raise MistakeError("record which? names, or --all")
    session.start()
    failed = 0
    for name, case in matching(patterns).items():
        began = time.monotonic()
        try:
            run = session.as_run(case, session.record(case))
        except Exception:
            traceback.print_exc()
            failed += 1
            continue
        store.keep_fresh(name, case, run)
        change = store.change(name, case, run)
        print(f"{change.value:8}{name} ({time.monotonic() - began:.1f} s)", flush=True)
    return 1 if failed else 0


def _whole(_: argparse.Namespace) -> int:
    session.start()
    for name, same in session.whole().items():
        print(f"{'same' if same else 'CHANGED':8}{name}")
    return 0


def _compiled(_: argparse.Namespace) -> int:
    session.start()
    found = {}
    for name, case in COMPILED.items():
        found[name] = {"config": case.config, "kept": session.kept_by_compile(case)}
        print(name, sum(found[name]["kept"]), flush=True)
    store.keep_compiled(found)
    return 0


def _merge(_: argparse.Namespace) -> int:
    changes = store.merge(MERGED)
    for name, change in changes.items():
        print(f"{change.value:8}{name}")
    print(f"{sum(c is not store.Change.SAME for c in changes.values())} of {len(changes)} merged")
    return 0


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BrokenPipeError:  # the reader has seen enough
        code = 0
    except KeyboardInterrupt:
        code = 130
    except Exception:
        traceback.print_exc()
        code = 3
    # the autograd engine's threads for a device that is not there end the interpreter badly
    sys.stderr.flush()
    os._exit(code)
