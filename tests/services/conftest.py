"""Real servers of our own, on free ports of this machine: PostgreSQL, and S3 as moto speaks it."""

import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.common import stop_all


@pytest.fixture(autouse=True)
def _nothing_left_running():
    """Stop the processes of a test that failed before it stopped them."""
    yield
    stop_all()


def program(name: str) -> str | None:
    """A server program; Debian keeps them out of the path."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(places[-1]) if places else None)


@dataclass(frozen=True)
class Postgres:
    """A server that can be stopped and started."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def control(self, *arguments: str) -> None:
        run(program("pg_ctl"), "-w", "-D", self.folder / "data", *arguments)

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        self.control("-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        self.control("-m", "immediate", "stop")


def run(*command: object) -> None:
    """Run a program of the server; it refuses to be root."""
    words = [str(word) for word in command]
    if os.getuid() == 0:
        words = ["runuser", "-u", "postgres", "--", *words]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    if program("pg_ctl") is None:
        pytest.skip("no PostgreSQL server on this machine; make test-services installs one")
    # Not below pytest's folder, which other users may not enter.
    folder = Path(f"/tmp/tune-calib-postgres-{os.getpid()}")
    folder.mkdir()
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Postgres(folder, free.getsockname()[1])
    run(program("initdb"), "-A", "trust", "-U", "postgres", "-D", folder / "data")
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def s3_server():
    """Address of an S3-compatible server; the environment leads every process there."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server, monkeypatch):
    """URL of a bucket."""
    boto3 = pytest.importorskip("boto3")
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="sweeps")
    return "s3://sweeps"
