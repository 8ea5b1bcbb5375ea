"""NEXMark's queries in Flink SQL, over the events of ``benchmarks.nexmark`` as CSV files: ``nexmark_stream --flink`` runs them.

Ranks with ties (q19) Flink does not have as a stream.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from benchmarks.other_engines import flink_csv, flink_numbers

WATERMARK = "ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
COLUMNS = {
    "person": f"id BIGINT, name STRING, email STRING, city STRING, state STRING, {WATERMARK}",
    "auction": "id BIGINT, item STRING, initial_bid BIGINT, reserve BIGINT, ts TIMESTAMP(3), expires TIMESTAMP(6),"
    " seller BIGINT, category BIGINT, WATERMARK FOR ts AS ts",
    "bid": f"auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, {WATERMARK}",
}
"""The columns of each table, in the order of the files."""


def windows(table: str, of: str = "TUMBLE", size: str = "INTERVAL '10' SECOND") -> str:
    """Return a table with the windows of its rows."""
    return f"TABLE({of}(TABLE {table}, DESCRIPTOR(ts), {size}))"


DAY, BY_WINDOW = windows("bid", size="INTERVAL '1' DAY"), "window_start, window_end"
HOPS = windows("bid", "HOP", "INTERVAL '2' SECOND, INTERVAL '10' SECOND")
SESSIONS = "TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '9.999' SECOND))"
COUNTS = f"SELECT auction, COUNT(*) AS n, {BY_WINDOW} FROM {HOPS} GROUP BY auction, {BY_WINDOW}"
SOLD = "FROM auction a JOIN bid b ON a.id = b.auction WHERE b.ts >= a.ts AND b.ts < a.expires"
DISTINCT = "COUNT(*) AS n, COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT auction) AS auctions"
SAME_WINDOW = "a.window_start = b.window_start AND a.window_end = b.window_end"

FLINK = {
    "q1": "SELECT auction, bidder, 0.908E0 * price AS price, ts FROM bid",
    "q2": "SELECT auction, price, ts FROM bid WHERE MOD(auction, 123) = 0",
    "q3": "SELECT name, city, state, a.id FROM auction a JOIN person p ON a.seller = p.id"
    " WHERE category = 10 AND state IN ('OR', 'ID', 'CA')",
    "q4": "SELECT category, AVG(CAST(final AS DOUBLE)) AS mean FROM"
    f" (SELECT category, MAX(price) AS final {SOLD} GROUP BY a.id, category) GROUP BY category",
    "q5": f"SELECT a.auction, a.n, a.window_start FROM ({COUNTS}) a JOIN"
    f" (SELECT MAX(n) AS n, {BY_WINDOW} FROM ({COUNTS}) GROUP BY {BY_WINDOW}) b ON {SAME_WINDOW} AND a.n = b.n",
    "q7": f"SELECT auction, bidder, a.price, a.window_start FROM (SELECT * FROM {windows('bid')}) a JOIN (SELECT"
    f" MAX(price) AS price, {BY_WINDOW} FROM {windows('bid')} GROUP BY {BY_WINDOW}) b ON {SAME_WINDOW} AND a.price = b.price",
    "q8": f"SELECT id, name, a.window_start FROM (SELECT id, name, {BY_WINDOW} FROM {windows('person')}"
    f" GROUP BY id, name, {BY_WINDOW}) a JOIN (SELECT seller, {BY_WINDOW} FROM {windows('auction')}"
    f" GROUP BY seller, {BY_WINDOW}) b ON {SAME_WINDOW} AND id = seller",
    "q9": "SELECT id, seller, bidder, price FROM (SELECT a.id, seller, bidder, price, ROW_NUMBER() OVER"
    f" (PARTITION BY a.id ORDER BY price DESC, b.ts, bidder) AS place {SOLD}) WHERE place = 1",
    # sessions that touch are one, in Flink
    "q11": f"SELECT bidder, COUNT(*) AS n, window_start FROM {SESSIONS} GROUP BY bidder, {BY_WINDOW}",
    "q14": "SELECT auction, bidder, 0.908E0 * price AS price, CASE WHEN HOUR(ts) BETWEEN 8 AND 18 THEN 'day' ELSE 'night' END,"
    " ts FROM bid WHERE 0.908E0 * price BETWEEN 1000000 AND 50000000",
    "q15": f"SELECT window_start, {DISTINCT}, COUNT(*) FILTER (WHERE price < 10000) AS low, COUNT(*) FILTER (WHERE price >= 10000"
    f" AND price < 1000000) AS middle, COUNT(*) FILTER (WHERE price >= 1000000) AS high FROM {DAY} GROUP BY {BY_WINDOW}",
    "q16": f"SELECT channel, window_start, {DISTINCT} FROM {DAY} GROUP BY channel, {BY_WINDOW}",
    "q17": "SELECT auction, window_start, COUNT(*) AS n, MIN(price) AS low, MAX(price) AS high,"
    f" AVG(CAST(price AS DOUBLE)) AS mean, SUM(price) AS total FROM {DAY} GROUP BY auction, {BY_WINDOW}",
    "q18": "SELECT bidder, auction, price, channel FROM (SELECT *, ROW_NUMBER() OVER"
    " (PARTITION BY bidder, auction ORDER BY ts DESC) AS place FROM bid) WHERE place = 1",
    "q20": "SELECT auction, bidder, price, channel, item, seller FROM bid b JOIN auction a ON b.auction = a.id"
    " WHERE category = 10 AND b.ts >= a.ts",
    "q21": "SELECT auction, bidder, price, channel, REGEXP_EXTRACT(url, 'channel_id=([0-9]+)', 1) AS number, ts FROM bid"
    " WHERE url LIKE '%channel_id=%'",
    "q22": "SELECT auction, bidder, price, SPLIT_INDEX(url, '/', 3) AS folder, SPLIT_INDEX(url, '/', 4) AS page, ts FROM bid",
}
"""The queries that Flink SQL has, by name."""


def write_csv(events: Path, folder: Path) -> None:
    """Write the events of each table as one CSV file, which one reader reads in order: else rows would be late in Flink."""
    for name in COLUMNS:
        table = pa.concat_tables(
            pq.read_table(events / name / f"{n}.parquet") for n in range(len([*(events / name).iterdir()]))
        )
        for column, unit in (("ts", "ms"), ("expires", "us")):
            if column in table.column_names:
                plain = table.column(column).cast(pa.timestamp("us")).cast(pa.timestamp(unit))
                table = table.set_column(table.schema.get_field_index(column), column, plain)
        (folder / name).mkdir(parents=True)
        pc.write_csv(table, folder / name / "0.csv", pc.WriteOptions(include_header=False, quoting_style="none"))


def by_flink(folder: Path, name: str, runs: int) -> list[list[int]]:
    """Return the milliseconds of each run of a query over the CSV files, and those of processors in it.

    Of no runs, the number of the query's rows that hold in the end.
    """
    tables = [flink_csv(table, columns, folder / table) for table, columns in COLUMNS.items()]
    return flink_numbers([*tables, FLINK[name]], runs)
