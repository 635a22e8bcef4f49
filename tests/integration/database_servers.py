"""PostgreSQL, MariaDB and MLflow servers of Debian's packages, on loopback, in a folder of their own."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

USER, PASSWORD = "ablate", "hunter2/p@ss:w%rd"
PASSWORD_VARIABLE = "ABLATE_TEST_PASSWORD"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _found(*names):
    """The first of these programs that is installed, in Debian's places too."""
    for name in names:
        places = [shutil.which(name), f"/usr/sbin/{name}", *sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))]
        for place in places:
            if place and Path(place).exists():
                return str(place)
    return None


def _as_user(name):
    """What stands before a command that root may not run itself."""
    return ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups"] if os.geteuid() == 0 else []


@dataclass
class DatabaseServer:
    """A server with the databases `ablate` and `tracking`, both of the user `ablate`."""

    name: str
    scheme: str
    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen | None = None

    def address(self, database="ablate", password=f"${{{PASSWORD_VARIABLE}}}"):
        return f"{self.scheme}://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def engine(self, database="ablate"):
        from ablate.spec.addresses import filled_in

        return create_engine(filled_in(self.address(database)))

    def start(self):
        with (self.folder / "log.txt").open("a") as log:
            self.process = subprocess.Popen(self._command(), stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + 60
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    pass
                subprocess.run(self._admin("SELECT 1"), check=True, capture_output=True)
                return
            except (OSError, subprocess.CalledProcessError):
                assert self.process.poll() is None, (self.folder / "log.txt").read_text()
                assert time.monotonic() < deadline, f"{self.name} does not start"
                time.sleep(0.2)

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGINT if self.name == "postgresql" else signal.SIGTERM)
            self.process.wait(60)
            self.process = None

    def tell(self, *statements):
        for statement in statements:
            done = subprocess.run(self._admin(statement), capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

    def empty(self):
        """Take everything out of the database of studies, as a restored server without a backup has it."""
        self.tell(*self._emptying())

    def everything(self):
        """All that is in the databases, as text."""
        found = []
        for database in ("ablate", "tracking"):
            engine = self.engine(database)
            with engine.connect() as connection:
                for table in connection.execute(text(self._tables(database))).scalars().all():
                    quoted = engine.dialect.identifier_preparer.quote(table)
                    found += [str(row) for row in connection.execute(text(f"SELECT * FROM {quoted}"))]
            engine.dispose()
        return "\n".join(found)

    def _command(self):
        if self.name == "postgresql":
            return [
                *_as_user("postgres"), _found("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port),
                "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}", "-c", "fsync=off",
            ]  # fmt: skip
        return [
            *_as_user("mysql"), _found("mariadbd", "mysqld"), "--no-defaults", f"--datadir={self.folder}/data",
            f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self.folder}/s",
            f"--pid-file={self.folder}/pid", "--innodb-flush-log-at-trx-commit=0",
        ]  # fmt: skip

    def _admin(self, statement):
        if self.name == "postgresql":
            host = ["-h", str(self.folder), "-p", str(self.port)]
            return [*_as_user("postgres"), _found("psql"), *host, "-d", "postgres", "-c", statement]
        return [
            *_as_user("mysql"),
            _found("mariadb", "mysql"),
            "--no-defaults",
            f"--socket={self.folder}/s",
            "-e",
            statement,
        ]

    def _tables(self, database):
        schema = "public" if self.name == "postgresql" else database
        return f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'"

    def _emptying(self):
        if self.name == "postgresql":
            return ["DROP DATABASE ablate WITH (FORCE)", f"CREATE DATABASE ablate OWNER {USER}"]
        return ["DROP DATABASE ablate", "CREATE DATABASE ablate"]


def _made(name, scheme, program):
    if _found(*program) is None:
        pytest.skip(f"{name} is not installed; on Debian: apt-get install {name.replace('mariadb', 'mariadb-server')}")
    folder = Path(tempfile.mkdtemp(prefix="db-", dir="/tmp"))  # a socket's path is short
    owner = "postgres" if name == "postgresql" else "mysql"
    if os.geteuid() == 0:
        found = pwd.getpwnam(owner)
        os.chown(folder, found.pw_uid, found.pw_gid)
    return DatabaseServer(name, scheme, folder)


def new_postgresql():
    server = _made("postgresql", "postgresql+psycopg", ["postgres"])
    command = [_found("initdb"), "-D", f"{server.folder}/data", "--auth-local=peer", "--auth-host=scram-sha-256"]
    subprocess.run([*_as_user("postgres"), *command, "-E", "UTF8", "--no-sync"], check=True, capture_output=True)
    server.start()
    server.tell(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")
    server.tell(*(f"CREATE DATABASE {database} OWNER {USER}" for database in ("ablate", "tracking")))
    return server


def new_mariadb():
    server = _made("mariadb", "mysql+pymysql", ["mariadbd", "mysqld"])
    command = [_found("mariadb-install-db", "mysql_install_db"), "--no-defaults", f"--datadir={server.folder}/data"]
    subprocess.run([*_as_user("mysql"), *command, "--auth-root-authentication-method=socket",
                    "--auth-root-socket-user=mysql", "--skip-test-db"], check=True, capture_output=True)  # fmt: skip
    server.start()
    server.tell(f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
    for database in ("ablate", "tracking"):
        server.tell(f"CREATE DATABASE {database}", f"GRANT ALL ON {database}.* TO {USER}@'127.0.0.1'")
    return server


NEW = {"postgresql": new_postgresql, "mariadb": new_mariadb}


@dataclass
class TrackingServer:
    """MLflow's HTTP server before a database."""

    database: DatabaseServer
    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen | None = None

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        from ablate.spec.addresses import filled_in

        environment = os.environ | {
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_BACKEND_STORE_URI": filled_in(self.database.address("tracking")),
        }
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--artifacts-destination", str(self.folder / "artifacts")]
        with (self.folder / "mlflow.txt").open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env=environment, start_new_session=True
            )
        deadline = time.monotonic() + 180
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                assert self.process.poll() is None, (self.folder / "mlflow.txt").read_text()
                assert time.monotonic() < deadline, "MLflow's server does not start"
                time.sleep(0.5)

    def stop(self):
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(60)
            self.process = None


def wait_until_gone(server):
    """Wait until a stopped server refuses connections."""
    engine = server.engine()
    try:
        while True:
            with engine.connect():
                time.sleep(0.1)
    except SQLAlchemyError:
        engine.dispose()
