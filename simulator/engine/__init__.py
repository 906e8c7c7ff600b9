"""Play a deployment on a discrete clock of integer nanoseconds."""

from simulator.engine.engine import play
from simulator.engine.prices import NO_OVERLAP_COST, Prices

__all__ = ["NO_OVERLAP_COST", "Prices", "play"]
