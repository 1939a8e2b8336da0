"""Runs programs written for llama-index-workflows: `python launch_each.py loom|original FOLDER FILE...`.

The package is imported once, and each program runs in a fork of this process. What `NAME.py` prints goes to
`FOLDER/NAME.out`. The last line on standard error names the module that `Workflow` came from.
"""

import os
import runpy
import sys
import traceback
from pathlib import Path

engine, folder, *files = sys.argv[1:]
if engine == "loom":
    import loom.compat

    loom.compat.install()

from workflows import Workflow  # noqa: E402 - the programs get what is installed

for file in files:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 1
        try:
            with Path(folder, f"{Path(file).stem}.out").open("wb") as out:
                os.dup2(out.fileno(), 1)
            sys.argv = [file]
            runpy.run_path(file, run_name="__main__")
            sys.stdout.flush()
            code = 0
        except BaseException:  # noqa: BLE001 - as the interpreter does
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{file} has failed on {engine}.")

sys.stderr.write(f"\n{Workflow.__module__}\n")
