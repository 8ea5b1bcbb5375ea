#!/usr/bin/env bash
# Fetch from Maven, into the virtual environment $1, what tests need of Kafka: a broker, and Spark's connector.
set -euo pipefail
venv=$(realpath "${1:?usage: scripts/kafka.sh VENV}")
jars=$venv/kafka
[ -e "$jars/.fetched" ] && exit 0
echo "kafka: fetching a broker and Spark's connector (a minute the first time)"
rm -rf "$jars"
# Ivy is among PySpark's jars
ivy=$("$venv/bin/python" -c 'import glob, os, pyspark; print(glob.glob(os.path.dirname(pyspark.__file__) + "/jars/ivy-*.jar")[0])')
for artifact in "org.apache.kafka kafka_2.13 4.3.1" "org.slf4j slf4j-simple 1.7.36"; do
    # shellcheck disable=SC2086
    java -jar "$ivy" -cache "$jars/ivy/cache" -warn -confs default -types jar bundle -dependency $artifact \
        -retrieve "$jars/[artifact]-[revision].[ext]" >/dev/null
done
# Spark takes an absolute path alone; what it prints is of use where it fails
log=$jars/spark.log
"$venv/bin/python" -c 'import sys, streamq as sq
sq.session(master="local[1]", config={"spark.jars.ivy": sys.argv[1]}, kafka=True).stop()' "$jars/ivy" >"$log" 2>&1 ||
    { cat "$log"; exit 1; }
touch "$jars/.fetched"
