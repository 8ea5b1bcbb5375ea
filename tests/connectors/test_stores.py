"""Files in a store of the cloud are read by PyArrow's client, in-process and as a worker reads them."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from urllib.parse import quote
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

import streamq as sq
from streamq.connectors.stored_files import file_system
from streamq.errors import SourceError

Put = Callable[[str, bytes], None]

SIGNED = "AWS4-HMAC-SHA256 Credential=a/20240101/us-east-1/s3/aws4_request"


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """A function that writes a file into a bucket of a server for S3, which the environment names."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    settings = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    for name, value in {**settings, "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)

    def put(path: str, content: bytes) -> None:
        headers = {"Content-Type": "application/octet-stream", "Authorization": SIGNED}
        urlopen(Request(f"{url}/{quote(path)}", content, headers, method="PUT")).close()

    put("trips", b"")
    yield put
    server.stop()


def test_files_in_a_bucket_are_read_in_process(put: Put) -> None:
    for n in range(3):
        file = io.BytesIO()
        pq.write_table(pa.table({"at": [n * 10, n * 10 + 1], "fare": [1.0, 2.0]}), file)
        put(f"trips/parquet/{n}.parquet", file.getvalue())
    for scheme in ("s3", "s3a", "s3n"):
        by_ten = sq.points(sq.files(f"{scheme}://trips/parquet"), time="at").tumbling_window(10)
        assert by_ten.select(n=sq.count()).to_arrow().column("n").to_pylist() == [2, 2, 2]
    two = sq.files("s3://trips/parquet/[01].parquet")
    assert not two.not_split()
    assert two.in_memory("show").num_rows == 4


def test_names_in_a_bucket_are_those_of_spark(put: Put) -> None:
    """A path has no escapes, in folders that name columns and in splits, whose paths Spark writes."""
    schema = "at bigint, k string, day date"
    put("trips/days/day=2024-05-01/a b[1]%20.csv", b"1,a\n2,b\n")
    put("trips/days/day=2024-05-02/c.csv.gz", gzip.compress(b"3,c\n"))
    files = sq.files("s3://trips/days", format="csv", schema=schema)
    days = sq.points(files, time="at").to_arrow().column("day").to_pylist()
    assert [str(day) for day in days] == ["2024-05-01", "2024-05-01", "2024-05-02"]
    path = "s3a://trips/days/day=2024-05-01/a b[1]%20.csv"
    splits = pa.record_batch({"split": [f"{n} 2 {path}" for n in range(2)]})
    reader = files._reader(["at", "k", "day"])
    assert [row["k"] for rows in reader(splits) for row in rows.to_pylist()] == ["a", "b"]
    assert file_system(path)[1] == path.partition("//")[2]


def test_what_is_not_in_a_store_is_an_error(put: Put) -> None:
    for url in ("s3://trips/none", "s3://nobody/trips"):
        with pytest.raises(SourceError, match="nothing at s3:"):
            sq.files(url).in_memory("show")
