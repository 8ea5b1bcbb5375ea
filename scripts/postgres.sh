#!/usr/bin/env bash
# On Debian and Ubuntu, as root, install PostgreSQL's server if it is missing; no server is started or left running.
# Without one, say that its tests are left out.
set -euo pipefail
python=${1:?usage: scripts/postgres.sh PYTHON}

has_server() {
    "$python" -m scripts.postgres
}

if ! has_server && [ "${STREAMQ_INSTALL_POSTGRES:-1}" = 1 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "postgres: installing postgresql"
    timeout 60 apt-get -qq update || true
    # Debian would make a cluster of its own and start it
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq install -y --no-install-recommends postgresql >/dev/null || true
fi
has_server || echo "postgres: LEFT OUT: tests of sq.postgres will not run: there is no server, and none could be installed."
