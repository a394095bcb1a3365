"""Common libraries, imported and used at module level: for each the worker's decision, and that a fork works."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

FORK = "fork: importing the code leaves no threads, connections or open databases"
RESEED = "fork after repair: random numbers of numpy are seeded again"
LIBRARIES = {
    "numpy": (RESEED, "import numpy; a = numpy.random.rand(400, 400); a @ a; numpy.linalg.inv(a)"),
    "pandas": (RESEED, "import pandas; pandas.DataFrame({'a': [1, 2, 1]}).groupby('a').size()"),
    "pyarrow": (RESEED, "import pyarrow as pa, pyarrow.compute as pc; pc.sum(pa.array(range(100_000)))"),
    "pyarrow.parquet": (
        r"spawn: importing the code leaves \d+ threads \(python\)",
        """import io, pyarrow as pa, pyarrow.parquet as pq
table, file = pa.table({'a': [1] * 9999, 'b': [2] * 9999}), io.BytesIO()
pq.write_table(table, file)
pq.read_table(io.BytesIO(file.getvalue()))""",
    ),
    "polars": (
        r"spawn: importing the code leaves \d+ threads? \(.*polars",
        "import polars; polars.DataFrame({'a': [1, 2, 1]}).group_by('a').len()",
    ),
    "duckdb": (
        r"spawn: importing the code leaves \d+ threads? \(",
        "import duckdb; duckdb.sql('SELECT sum(i) FROM range(1000000) t(i)').fetchall()",
    ),
    "torch": ("fork after repair: .*random numbers of torch", "import torch; a = torch.rand(400, 400); a @ a"),
    "jax": ("spawn: ", "import jax.numpy as jnp; jnp.ones((99, 99)).sum()"),
    "sklearn": (
        RESEED,
        "from sklearn.linear_model import LinearRegression; LinearRegression().fit([[1], [2]], [1, 2])",
    ),
    "scipy": (RESEED, "import scipy.fft; scipy.fft.fft([1.0] * 4096)"),
    "numba": (RESEED, "import numba; numba.njit(lambda x: x + 1)(1)"),
    "cv2": ("spawn: ", "import cv2, numpy; cv2.GaussianBlur(numpy.zeros((999, 999), numpy.uint8), (5, 5), 0)"),
    "PIL": (FORK, "from PIL import Image; Image.new('RGB', (99, 99)).resize((9, 9))"),
    "matplotlib": (
        FORK,
        "import matplotlib; matplotlib.use('Agg'); import matplotlib.pyplot as p; p.plot([1, 2]); p.close()",
    ),
    "sqlalchemy": (
        FORK,
        """import sqlalchemy as s
engine = s.create_engine('sqlite://')
with engine.connect() as connection:
    connection.execute(s.text('SELECT 1'))""",
    ),
    "psycopg2": (FORK, "import psycopg2.extensions; psycopg2.extensions.parse_dsn('host=nowhere')"),
    "redis": (
        "fork after repair: idle connections of redis were closed",
        "import redis; client = redis.Redis(unix_socket_path=sys.argv[2]); client.ping()",
    ),
    "redis.sentinel": (
        "spawn: importing the code leaves a connection to .*sock",
        "import redis; client = redis.Redis(unix_socket_path=sys.argv[2]).client(); client.ping()",
    ),
    "requests": (
        "fork after repair: idle connections of urllib3 were closed",
        """import http.server, requests, threading
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
serving = threading.Thread(target=server.handle_request)
serving.start()
session = requests.Session()
session.head(f'http://127.0.0.1:{server.server_port}/')
serving.join()
server.server_close()""",
    ),
    "httpx": (FORK, "import httpx; client = httpx.Client()"),
    "aiohttp": (FORK, "import aiohttp; aiohttp.ClientTimeout()"),
    "boto3": (
        FORK,
        "import boto3; boto3.client('s3', 'eu-west-1', aws_access_key_id='a', aws_secret_access_key='b')",
    ),
    "grpc": (
        r"spawn: importing the code leaves \d+ threads \(.*grpc",
        "import grpc; channel = grpc.insecure_channel('127.0.0.1:1'); grpc.channel_ready_future(channel)",
    ),
    "opentelemetry.sdk": (
        r"spawn: importing the code leaves 1 thread \(",
        """from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
processor = BatchSpanProcessor(ConsoleSpanExporter())""",
    ),
    "cryptography": (
        FORK,
        "from cryptography.fernet import Fernet; Fernet(Fernet.generate_key()).encrypt(b'x')",
    ),
    "celery": (FORK, "import celery; celery.Celery('a', broker='memory://')"),
    "pyspark": (FORK, "import pyspark.sql.functions as f; f.col"),
    "pydantic": (FORK, "import pydantic; pydantic.TypeAdapter(list[int]).validate_python(['1'])"),
}
"""By library: the decision that the worker must take, as a pattern, and the module-level code."""
_PROGRAM = """
import gc, os, signal, sys
gc.disable()  # as a fork server does until all is loaded: it saves a quarter of a second for each library
from orchestration_queue.worker.forks import fork_safety
known = fork_safety.open_descriptors()
exec(sys.argv[1])
repairs = [*fork_safety.close_idle_connections(), *fork_safety.find_repairs()]
hazards = fork_safety.find_hazards(known)
print(fork_safety.decide(hazards, repairs), flush=True)
if hazards:
    os._exit(0)
if not (child := os.fork()):
    signal.alarm(60)
    fork_safety.reseed()
    exec(sys.argv[1])
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.timeout(200)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's native threads and descriptors")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_used_at_import_is_forked_repaired_or_spawned(library: str, server_url: str) -> None:
    if importlib.util.find_spec(library.partition(".")[0]) is None:
        pytest.skip(f"{library} is not installed")
    decision, code = LIBRARIES[library]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM, code, server_url.removeprefix("unix://")],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.match(decision, done.stdout), done.stdout
