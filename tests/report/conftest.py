"""The made-up traces of ``tests/trace`` serve the views too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "trace"))
