#!/usr/bin/env bash
# Builds sdist and wheel from a clean copy, installs the wheel into a fresh environment that borrows the dependencies
# of the given one, and runs it from a folder whose `memory.py` and `graphs/` would break it if it picked them up.
# Usage: scripts/check_wheel.sh [PYTHON]
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
python=$(cd "$(dirname "${1:-$root/.venv/bin/python}")" && pwd)/$(basename "${1:-python}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export EVOKERNEL_HOME="$work/home" PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH

mkdir "$work/source" "$work/elsewhere" "$work/elsewhere/graphs"
cp -RP "$root"/{pyproject.toml,README.md,evokernel,memory,graphs} "$work/source"
"$python" -m build --no-isolation --outdir "$work/dist" "$work/source" >"$work/build.log" 2>&1 || {
    cat "$work/build.log"
    exit 1
}

"$python" -m venv --without-pip "$work/venv"
fresh="$work/venv/bin/python"
"$python" -m pip --python "$fresh" install -qq --no-deps --no-index "$work"/dist/*.whl
borrowed=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$borrowed" >"$("$fresh" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"

cd "$work/elsewhere"
echo 'raise ImportError("this is a memory.py of the user")' >memory.py
echo 'raise ImportError("this is a graphs package of the user")' >graphs/__init__.py
"$fresh" - "$work/venv" <<'PY'
import sys
from pathlib import Path

import evokernel.graphs
import evokernel.memory

for module in (evokernel, evokernel.graphs, evokernel.memory):
    if Path(sys.argv[1]).resolve() not in Path(module.__file__).resolve().parents:
        sys.exit(f"`{module.__name__}` came from {module.__file__}, not from the wheel")
if not (Path(evokernel.__file__).parent / "py.typed").is_file():
    sys.exit("the wheel lacks `py.typed`")

from evokernel.report.html import rendered

rendered("base.html", title="from the wheel", subtitle="")
PY
"$fresh" -m evokernel --version
"$work/venv/bin/evokernel" task list
echo "The wheel runs."
