"""Compile the shim against the torch of this environment: ``python build.py OUTPUT``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths

SOURCE = Path(__file__).with_name("fake_cuda.cpp")


def command(output: Path) -> list[str]:
    """The compiler's command line; ``CXX`` names another compiler than g++."""
    libraries = Path(torch.__file__).parent / "lib"
    return [
        *(os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-fPIC", "-shared"),
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(f"-I{folder}" for folder in include_paths()),
        *(str(SOURCE), "-o", str(output)),
        *(f"-L{libraries}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{libraries}"),
    ]


def main() -> None:
    """Build, or say why not."""
    if torch.version.cuda is not None:
        sys.exit(f"torch {torch.__version__} is a CUDA build, and the recorder needs a CPU build")
    try:
        subprocess.run(command(Path(sys.argv[1])), check=True)
    except FileNotFoundError as missing:
        sys.exit(f"the shim needs a C++ compiler: {missing}")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"the compiler said no (exit code {failed.returncode})")


if __name__ == "__main__":
    main()
