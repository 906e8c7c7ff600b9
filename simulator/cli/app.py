"""The verbs, joined."""

from __future__ import annotations

import click

from simulator.cli.check import check
from simulator.cli.compare import compare
from simulator.cli.init import init
from simulator.cli.list import list_
from simulator.cli.options import debug_option
from simulator.cli.run import run
from simulator.cli.schema import schema
from simulator.cli.show import show
from simulator.cli.validate import validate
from simulator.errors import UnknownNameError

VERBS: dict[str, click.Command] = {
    "run": run,
    "compare": compare,
    "validate": validate,
    "check": check,
    "show": show,
    "list": list_,
    "init": init,
    "schema": schema,
}
"""Every verb by its name, in the order that ``--help`` prints."""


class Verbs(click.Group):
    """A group that keeps the order of its verbs and names the nearest to one it doesn't have."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of ``VERBS``: first what is asked most."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that the first argument names. Raises UnknownNameError."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            raise UnknownNameError("verb", args[0], self.commands)
        return super().resolve_command(ctx, args)


def _version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        from simulator.cli.output import emit

        emit(f"dryfit {version('dryfit')}")
        context.exit()


@click.group(
    cls=Verbs,
    commands=VERBS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 yes, 1 no (does not fit, out of bounds), 2 a mistake of yours, "
    "3 one of ours, 130 interrupted, 129 or 143 hung up or terminated by a signal.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Print the version.",
)
@debug_option
def app() -> None:
    """Dry-fit a training run of a large model before you book the hardware.

    Begin with: dryfit run llama2-7b-fsdp2-8xa100
    """
