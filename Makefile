# make test: everything CI runs, from nothing but python3 (3.11 or later), make and, on Debian, python3-venv.
VENV  ?= .venv
SOAK  ?= tests
FUZZ  ?= 30
PY    := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# Compiled files are kept: hundreds of processes of a run import the same ones.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: test java lint format types fast slow browser soak fuzz old demo demo-kafka docs notebooks bench clean
.NOTPARALLEL:

test: java lint types fast slow browser

$(STAMP): pyproject.toml requirements/test.txt scripts/bootstrap.sh
	@bash scripts/bootstrap.sh $(VENV)
	@touch $@

java: $(STAMP)
	@bash scripts/java.sh $(PY)
	@bash scripts/kafka.sh $(VENV)
	@bash scripts/postgres.sh $(PY)

lint: $(STAMP)
	$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet . || { echo "Not formatted as above: make format"; exit 1; }

format: $(STAMP)
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

types: $(STAMP)
	$(PY) -m mypy streamq benchmarks

fast: $(STAMP)
	$(PY) -m pytest -q -m "not spark and not slow" --ignore=tests/spark --ignore=tests/browser -n auto --dist worksteal

# On Spark, and what takes seconds without. A JVM that lives for minutes compiles no more than it must; what is compiled
# has room: in the 48 MB that it would get, a ninth of the time went into making room and compiling again. Two processes, a Spark each:
# the driver of one plans while the other's waits for its tasks. Spark's classes are not verified: a sixth of a JVM's start.
slow: java
	JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC \
	    -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote" $(PY) -m pytest -q -m "spark or slow" --ignore=tests/browser -n 2 --dist worksteal --durations=10

# Pages, and a live view in JupyterLab, in a headless Chromium, with a screenshot of each in screenshots/
browser: java
	@bash scripts/browser.sh $(PY)

# The same tests with many more random examples: make soak SOAK=tests/laws
soak: java
	STREAMQ_SOAK=1 $(PY) -m pytest -q $(SOAK)

# What random queries can find in FUZZ seconds an operator, and in 24 times that for operators on each other
fuzz: java
	STREAMQ_FUZZ=$(FUZZ) $(PY) -m pytest -q tests/laws/test_operators.py -n auto --dist worksteal --streamq-seed=random

# README's examples, and tables of Delta and Iceberg, on the oldest PySpark, in an environment of its own; not part of make test
old: java
	@bash scripts/old_spark.sh $(VENV) $(VENV)-old

demo: java
	$(PY) -m streamq.demo $(if $(EVENT_LOG),"$(EVENT_LOG)")

# From topic to topic, on a broker that is started and ended
demo-kafka: java
	$(PY) -m scripts.demo_kafka

# docs/language.md from the docstrings, the tables of docs/expressions.md from the functions, the pictures of pages, and
# the site in site/
docs: $(STAMP)
	$(PY) scripts/language_page.py
	$(PY) scripts/expressions_page.py
	$(PY) scripts/page_pictures.py
	$(PY) -m mkdocs build --quiet --strict

# Execute the notebooks, and keep them with their outputs; make docs only shows them, because each starts a Spark of its own.
# One of them: make notebooks NAMES=02_windows
notebooks: java
	$(PY) scripts/notebooks.py $(NAMES)

bench: java
	$(PY) -m benchmarks $(ARGS)

clean:
	rm -rf dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
