"""Runs a program written for llama-index-workflows: `python launch.py loom|original FILE [ARGS]`.

The last line on standard error names the module that the program's `Workflow` class came from.
"""

import runpy
import sys

engine, *sys.argv = sys.argv[1:]
if engine == "loom":
    import loom.compat

    loom.compat.install()

runpy.run_path(sys.argv[0], run_name="__main__")

from workflows import Workflow  # noqa: E402 - the program imports it first

sys.stderr.write(f"\n{Workflow.__module__}\n")
