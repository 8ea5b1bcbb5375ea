#!/usr/bin/env bash
# Check Java with streamq's own probe, run by the interpreter $1; on Debian and Ubuntu, as root, install what is missing.
set -euo pipefail
python=${1:?usage: scripts/java.sh PYTHON}

check() {
    "$python" -c 'import os, sys; from streamq.run.session.findings import check_java
finding = check_java(os.environ)
print(f"Java {finding.observed}") if finding.ok else sys.exit(finding.message("java"))'
}

if message=$(check 2>&1); then
    echo "$message"
elif [ "${STREAMQ_INSTALL_JAVA:-1}" = 1 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "$message"
    echo "java: installing default-jre-headless"
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends default-jre-headless >/dev/null
    check
else
    echo "$message" >&2
    exit 1
fi
