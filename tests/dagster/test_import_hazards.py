"""Common libraries, imported and used at module level: each is forked and works there, or is found to be unsafe."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

LIBRARIES = {
    "numpy": "import numpy; a = numpy.random.rand(400, 400); a @ a; numpy.linalg.inv(a)",
    "pandas": "import pandas; pandas.DataFrame({'a': [1, 2, 1]}).groupby('a').size()",
    "pyarrow": "import pyarrow as pa, pyarrow.compute as pc; pc.sum(pa.array(range(100_000)))",
    "pyarrow.parquet": """import io, pyarrow as pa, pyarrow.parquet as pq
table, file = pa.table({'a': [1] * 9999, 'b': [2] * 9999}), io.BytesIO()
pq.write_table(table, file)
pq.read_table(io.BytesIO(file.getvalue()))""",
    "polars": "import polars; polars.DataFrame({'a': [1, 2, 1]}).group_by('a').len()",
    "duckdb": "import duckdb; duckdb.sql('SELECT sum(i) FROM range(1000000) t(i)').fetchall()",
    "torch": "import torch; a = torch.rand(400, 400); a @ a",
    "tensorflow": "import tensorflow as tf; tf.linalg.matmul(tf.ones((99, 99)), tf.ones((99, 99)))",
    "jax": "import jax.numpy as jnp; jnp.ones((99, 99)).sum()",
    "sklearn": "from sklearn.linear_model import LinearRegression; LinearRegression().fit([[1], [2]], [1, 2])",
    "scipy": "import scipy.fft; scipy.fft.fft([1.0] * 4096)",
    "numba": "import numba; numba.njit(lambda x: x + 1)(1)",
    "cv2": "import cv2, numpy; cv2.GaussianBlur(numpy.zeros((999, 999), numpy.uint8), (5, 5), 0)",
    "PIL": "from PIL import Image; Image.new('RGB', (99, 99)).resize((9, 9))",
    "matplotlib": "import matplotlib; matplotlib.use('Agg'); import matplotlib.pyplot as p; p.plot([1, 2]); p.close()",
    "sqlalchemy": "import sqlalchemy as s; e = s.create_engine('sqlite://'); e.connect().execute(s.text('SELECT 1'))",
    "psycopg2": "import psycopg2.extensions; psycopg2.extensions.parse_dsn('host=nowhere')",
    "redis": "import redis; redis.Redis(port=1)",
    "requests": "import requests; s = requests.Session()",
    "httpx": "import httpx; c = httpx.Client()",
    "aiohttp": "import aiohttp; aiohttp.ClientTimeout()",
    "boto3": "import boto3; boto3.client('s3', 'eu-west-1', aws_access_key_id='a', aws_secret_access_key='b')",
    "grpc": "import grpc; c = grpc.insecure_channel('127.0.0.1:1'); grpc.channel_ready_future(c)",
    "cryptography": "from cryptography.fernet import Fernet; Fernet(Fernet.generate_key()).encrypt(b'x')",
    "celery": "import celery; celery.Celery('a', broker='memory://')",
    "pyspark": "import pyspark.sql.functions as f; f.col",
    "pydantic": "import pydantic; pydantic.TypeAdapter(list[int]).validate_python(['1'])",
}
_PROGRAM = """
import os, signal, sys
from orchestration_queue.dagster.steps.fork_safety import find_hazards, open_descriptors
known = open_descriptors()
exec(sys.argv[1])
hazards = find_hazards(known)
print(*hazards)
if not hazards:
    if not (child := os.fork()):
        signal.alarm(30)
        exec(sys.argv[1])
        os._exit(0)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.timeout(200)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_used_at_import_works_in_a_fork_or_is_found_unsafe(library: str) -> None:
    if importlib.util.find_spec(library.partition(".")[0]) is None:
        pytest.skip(f"{library} is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM, LIBRARIES[library]],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    print(library, "->", done.stdout.strip() or "fork")  # noqa: T201  what the worker would decide
    assert done.returncode == 0, done.stderr
