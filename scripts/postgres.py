"""A server of PostgreSQL in processes of its own, on a free port of this computer; run as a program, whether there is one."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

SETTINGS = (
    "-c",
    "fsync=off",
    "-c",
    "shared_buffers=16MB",
    "-c",
    "max_connections=20",
    "-c",
    "listen_addresses=127.0.0.1",
)

PROGRAMS = ("initdb", "postgres", "pg_isready")


def find_server() -> Path | None:
    """The folder of the server's programs, of the newest version; None if there is none."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True
    )
    path = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    return next((f for f in (*folders, *path) if all((f / program).exists() for program in PROGRAMS)), None)


class PostgresServer:
    """A server that keeps its databases in a folder, with the superuser ``me``, who has the password ``a b@c``."""

    password = "a b@c"

    def __init__(self, folder: Path):
        programs = find_server()
        assert programs is not None, "no PostgreSQL: make java installs it"
        self.folder, self.programs = folder, programs
        # root may not run it
        self.user = "postgres" if os.geteuid() == 0 else None
        if self.user is not None:
            shutil.chown(folder, self.user)
        secret = folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = int(s.getsockname()[1])
        options = ("-U", "me", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync", "-E", "UTF8", "--locale=C")
        subprocess.run([programs / "initdb", "-D", folder / "data", *options], check=True, **self._process)

    @property
    def _process(self) -> dict[str, Any]:
        own = (
            {}
            if self.user is None
            else {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}
        )
        return {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "cwd": self.folder, **own}

    def start(self) -> None:
        """Start it, and return when it answers."""
        where = ("-D", self.folder / "data", "-p", str(self.port), "-k", str(self.folder))
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", *where, *SETTINGS], **{**self._process, "stdout": log, "stderr": log}
            )
        ready = [str(self.programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"]
        while subprocess.run(ready, check=False).returncode and self.process.poll() is None:
            pass
        assert self.process.poll() is None, (self.folder / "log").read_text()

    def stop(self) -> None:
        """End it at once, with all connections; transactions that are not committed are gone."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)

    def dsn(self, password: str | None = None, user: str = "me") -> str:
        return f"host=127.0.0.1 port={self.port} dbname=postgres user={user} password='{password or self.password}'"

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Run a statement by itself; its rows, if it has any."""
        with psycopg.connect(self.dsn()) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server, in a folder of its own that another user can read, that runs until the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(find_server() is None)
