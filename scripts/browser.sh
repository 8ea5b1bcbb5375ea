#!/usr/bin/env bash
# Run tests/browser by the interpreter $1 in a headless Chromium; on Debian and Ubuntu, as root, install it if it is missing.
# Without one, say that these tests are left out.
set -euo pipefail
python=${1:?usage: scripts/browser.sh PYTHON}

reason=""
has_chromium() {
    reason=$("$python" -m tests.browser.chromium 2>&1)
}

if ! has_chromium && [ "${STREAMQ_INSTALL_BROWSER:-1}" = 1 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "browser: installing chromium"
    timeout 60 apt-get -qq update || true
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq install -y --no-install-recommends chromium >/dev/null || true
fi
if has_chromium; then
    exec "$python" -m pytest -q -m browser tests/browser
fi
echo "browser: LEFT OUT: tests/browser did not run. $reason"
