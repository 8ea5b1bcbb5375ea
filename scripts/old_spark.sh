#!/usr/bin/env bash
# Run, on the oldest PySpark that streamq takes, README's examples and the tests of Delta and Iceberg, whose packages fit no newer one.
# $1: the virtual environment that there is; $2: one of its own, which is made the first time.
set -euo pipefail
python=${1:?usage: scripts/old_spark.sh VENV OLD_VENV}/bin/python
venv=${2:?usage: scripts/old_spark.sh VENV OLD_VENV}
oldest=4.1.4
if [ "$venv/.installed" -ot requirements/test.txt ]; then
    echo "old_spark: PySpark $oldest into $venv (some minutes the first time)"
    "$python" -m venv --clear "$venv"
    sed "s/^pyspark==.*/pyspark==$oldest/" requirements/test.txt >"$venv/requirements.txt"
    "$venv/bin/python" -m pip install --quiet -r "$venv/requirements.txt"
    touch "$venv/.installed"
fi
venv=$(realpath "$venv")
export PYTHONPATH=$PWD PYSPARK_PYTHON=$venv/bin/python
"$venv/bin/python" -m pytest -q tests/test_docs.py -k README
"$venv/bin/python" -m pytest -q tests/spark/tables_of_old_spark.py
