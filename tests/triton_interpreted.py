"""Runs Triton candidates in Triton's interpreter, on a CPU: a program of its own, started by tests.

Argument: a folder with `N.py`, a candidate, and `N.pt`, its inputs and weights, for each number N
in `list.json`. What a candidate returns, or the text of what it raises, is left in `N.out.pt`.
The interpreter has to be chosen before Triton is imported, hence a process.
"""

import json
import os
import sys
import traceback
import warnings
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import torch

sys.path.insert(0, sys.argv[1])


def result(folder: Path, number: int) -> object:
    given = torch.load(folder / f"{number}.pt", weights_only=False)
    candidate = __import__(f"c{number}")
    module = candidate.ModelNew(*given["init"])
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(given["dtype"])
    module.load_state_dict(given["state"])
    found = [module(*inputs) for inputs in given["inputs"]]
    return [list(one) if isinstance(one, tuple) else one for one in found]


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # NumPy says so where numbers overflow, as they may
    folder = Path(sys.argv[1])
    for number in json.loads((folder / "list.json").read_text()):
        try:
            found = result(folder, number)
        except Exception:
            found = traceback.format_exc()
        torch.save(found, folder / f"{number}.out.pt")


main()
