"""A PostgreSQL server of one's own: a data directory that goes away, a Unix socket, no network.

Also used by ``benchmarks/database_scoring.py``.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

import ringlet

ACCOUNT = "postgres"
INSTALLATIONS = Path("/usr/lib/postgresql")
PACKAGES = [Path(ringlet.__file__).parents[1], Path(sysconfig.get_path("purelib"))]
"""Where the server finds Ringlet and what it needs."""
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "20",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "jit": "off",
}
WATCH = '"$@" & exec > /dev/null 2>&1; read -r _; kill -QUIT $!; wait'
"""A shell that ends the server when nobody holds the other end of its standard input any more."""
_numbers = itertools.count()


def programs() -> Path | None:
    """The newest installation that has plpython3u."""
    found = (path for path in INSTALLATIONS.glob("*/bin") if (path / "initdb").is_file())
    having = [path for path in found if (_share(path) / "extension/plpython3u.control").is_file()]
    return max(having, key=lambda path: float(path.parent.name), default=None)


def missing() -> str | None:
    """Why no server can be started here."""
    if programs() is None:
        return "needs PostgreSQL with plpython3u (Debian: postgresql-15, postgresql-plpython3-15)"
    if os.getuid() != 0:
        return None
    try:
        pwd.getpwnam(ACCOUNT)
    except KeyError:
        return f"needs a user '{ACCOUNT}': root may not run PostgreSQL"
    closed = [place for path in PACKAGES for place in (path, *path.parents) if not place.stat().st_mode & 0o001]
    return f"needs packages that user '{ACCOUNT}' may read: {closed[0]} is closed to others" if closed else None


def _share(path: Path) -> Path:
    return Path("/usr/share/postgresql") / path.parent.name


class Server:
    """A running server; it ends with :meth:`stop`, or with this process."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        found = programs()
        assert found is not None
        self._programs, self.log = found, []
        self.folder = Path(tempfile.mkdtemp(prefix="ringlet-pg-", dir="/tmp"))
        self.folder.chmod(0o755)
        self._account = {}
        if os.getuid() == 0:
            account = pwd.getpwnam(ACCOUNT)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._account = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self._process = self._start(settings or {})

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def fresh_database(self) -> str:
        """The address of a new empty database."""
        import psycopg

        name = f"test{next(_numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"create database {name} template template0")
        return self.url(name)

    def stop(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._reader.join(timeout=30)
        self._process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, settings: Mapping[str, str]) -> subprocess.Popen[str]:
        data = self.folder / "data"
        environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "PYTHONPATH": os.pathsep.join(map(str, PACKAGES))}
        options = {"env": environment, "cwd": "/", "text": True, "stderr": subprocess.STDOUT, **self._account}
        initdb = [self._programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        done = subprocess.run(initdb, stdout=subprocess.PIPE, timeout=60, **options)
        assert done.returncode == 0, done.stdout
        command = ["/bin/sh", "-c", WATCH, "sh", self._programs / "postgres", "-D", data, "-k", self.folder]
        for name, value in {**SETTINGS, **settings}.items():
            command += ["-c", f"{name}={value}"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        for line in process.stdout:
            self.log.append(line)
            if "ready to accept connections" in line:
                break
        else:
            raise RuntimeError("".join(self.log))
        self._reader = Thread(target=self.log.extend, args=(process.stdout,), daemon=True)
        self._reader.start()
        return process
