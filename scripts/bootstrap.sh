#!/usr/bin/env bash
# Make or update the virtual environment $1: the pinned packages and this project, editable.
set -euo pipefail
venv=${1:?usage: scripts/bootstrap.sh VENV}
new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

python=""
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if command -v "$candidate" >/dev/null && "$candidate" -c "$new_enough" 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    found=$(python3 --version 2>&1 || true)
    echo "bootstrap: no Python 3.11 or later; python3 is: ${found:-not there}. Install one, or name one: make test PYTHON=/path/to/python3.12" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "bootstrap: $python cannot make virtual environments. Install what it lacks: apt-get install python3-venv (Debian, Ubuntu)" >&2
    exit 1
fi

if ! "$venv/bin/python" -c "$new_enough" 2>/dev/null; then
    echo "bootstrap: $("$python" --version) into $venv"
    "$python" -m venv --clear "$venv"
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
echo "bootstrap: installing requirements/test.txt (a few minutes the first time)"
"$venv/bin/python" -m pip install --quiet -r requirements/test.txt
"$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation --editable .
"$venv/bin/python" -m pip check
