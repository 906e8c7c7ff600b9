"""The way out: every ending becomes an exit code and, at most, a sentence on stderr."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum

import click

from simulator.cli.app import app
from simulator.cli.options import Session
from simulator.cli.output import complain
from simulator.errors import UserError


class ExitCode(IntEnum):
    """What the shell is told."""

    YES = 0
    NO = 1
    USER = 2
    OURS = 3
    INTERRUPTED = 130


class StoppedError(BaseException):
    """A signal asks this process to end; its argument is the signal's number."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; no traceback without ``--debug``."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # closed, or replaced by something that is no text stream
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    session = Session()
    try:
        with _stoppable():
            return int(
                app.main(arguments, prog_name="dryfit", standalone_mode=False, obj=session) or 0
            )
    except StoppedError as error:
        complain("stopped")
        return 128 + int(error.args[0])
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        return ExitCode.USER
    except UserError as error:
        return _failed(session, str(error), ExitCode.USER)
    except Exception as error:
        return _failed(session, _bug(error, session), ExitCode.OURS)


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind what is under way, as an interruption does, and clean up."""
    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is threading.main_thread():
        ours = [each for each in signals if signal.getsignal(each) is signal.SIG_DFL]
    else:
        ours = []

    def stop(number: int, _: object) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise StoppedError(number)

    for each in ours:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)


def _failed(session: Session, message: str, code: ExitCode) -> ExitCode:
    if session.debug:
        with suppress(OSError):
            traceback.print_exc()
    complain(message)
    return code


def _bug(error: Exception, session: Session) -> str:
    what = f"this is a mistake in dryfit, not yours ({type(error).__name__}: {error})"
    how = "" if session.debug else "; run the same command with --debug"
    return f"{what}{how} and report it together with the scenario"
