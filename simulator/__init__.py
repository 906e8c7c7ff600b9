"""dryfit: dry-fit a training run of a large model before you book the hardware.

>>> from simulator import simulate
>>> simulate("llama2-7b-fsdp2-8xa100", memory_only=True).memory.fits
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.errors import DryfitError, ScenarioError, UserError
    from simulator.run import simulate
    from simulator.scenario import Scenario, load
    from simulator.study.compare import compare
    from simulator.trace.result import Result, summarise
    from simulator.trace.trace import Trace

__all__ = [
    "DryfitError",
    "Result",
    "Scenario",
    "ScenarioError",
    "Trace",
    "UserError",
    "compare",
    "load",
    "simulate",
    "summarise",
]

_HOME = {
    "DryfitError": "errors",
    "Result": "trace.result",
    "Scenario": "scenario",
    "ScenarioError": "errors",
    "Trace": "trace.trace",
    "UserError": "errors",
    "compare": "study.compare",
    "load": "scenario",
    "simulate": "run",
    "summarise": "trace.result",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'simulator' has no attribute {name!r}")
    return getattr(import_module(f"simulator.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
