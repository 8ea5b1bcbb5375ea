"""NEXMark: an auction house's queries, by streamq and by Spark SQL over the same Parquet files, in turn.

    python -m benchmarks.nexmark [--events 5000000] [--only q4 q9] [--repeat 3] [--plans] [--json FILE]

Of each 50 events one is a person, three are auctions and 46 are bids, as in the generator of NEXMark (Tucker, Tufte, Papadimos
and Maier, "NEXMark: a benchmark for queries over data streams", 2008; proportions, hot auctions and hot bidders as in Apache
Beam's). Queries of processing time (q12) and of a file system (q10) are left out; all others read event time. A query whose
answer changes as events come is a history in streamq; what it holds in the end is Spark's answer, and both must have equal rows.

``--plans``: instead of times, the seconds to plan, and the nodes, exchanges and scans of Spark's plans. Ratios above 1: streamq
is slower.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamq as sq

BEGIN = 1_704_067_200_000_000
"""The microsecond of the first event, 2024-01-01."""
RATE = 1_000
"""Events a second of event time."""
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
FIRST_PERSON, FIRST_AUCTION = 1_000, 1_000
CATEGORIES = 5
HOT, HOT_BIDDERS = 100, 4

Seconds = float


def generate(folder: Path, events: int, files: int = 4) -> None:
    """Write ``events`` events as three folders of Parquet files, in the order of time: person, auction and bid."""
    rng = np.random.default_rng(7)
    number = np.arange(events)
    epoch, place = number // 50, number % 50
    at = BEGIN + number * (1_000_000 // RATE)
    for name, make, is_kind in (
        ("person", persons, place < 1),
        ("auction", auctions, (place >= 1) & (place < 4)),
        ("bid", bids, place >= 4),
    ):
        table = make(rng, epoch[is_kind], place[is_kind], at[is_kind])
        (folder / name).mkdir(parents=True)
        for n in range(files):
            first, end = (table.num_rows * m // files for m in (n, n + 1))
            pq.write_table(table.slice(first, end - first), folder / name / f"{n}.parquet")


def persons(rng: np.random.Generator, epoch: np.ndarray, place: np.ndarray, at: np.ndarray) -> pa.Table:
    """Return a person an epoch."""
    n = len(epoch)
    number = FIRST_PERSON + epoch
    return pa.table(
        {
            "id": number,
            "name": pa.array([f"Person {i % 997}" for i in number]),
            "email": pa.array([f"p{i}@example.com" for i in number]),
            "city": pa.array(CITIES).take(pa.array(rng.integers(0, len(CITIES), n))),
            "state": pa.array(STATES).take(pa.array(rng.integers(0, len(STATES), n))),
            "ts": instants(at),
        }
    )


def auctions(rng: np.random.Generator, epoch: np.ndarray, place: np.ndarray, at: np.ndarray) -> pa.Table:
    """Return three auctions an epoch, of sellers who have come, three of four the last hot one."""
    n = len(epoch)
    hot = epoch // HOT * HOT
    recent = np.maximum(0, epoch - rng.integers(0, 1_000, n))
    seller = np.where(rng.random(n) < 0.75, hot, recent)
    initial = prices(rng, n)
    return pa.table(
        {
            "id": FIRST_AUCTION + 3 * epoch + place - 1,
            "item": pa.array([f"item {i}" for i in rng.integers(0, 10_000, n)]),
            "initial_bid": initial,
            "reserve": initial + prices(rng, n),
            "ts": instants(at),
            "expires": instants(at + rng.integers(1, 20_000_000, n)),
            "seller": FIRST_PERSON + seller,
            "category": 10 + rng.integers(0, CATEGORIES, n),
        }
    )


def bids(rng: np.random.Generator, epoch: np.ndarray, place: np.ndarray, at: np.ndarray) -> pa.Table:
    """Return 46 bids an epoch: half of them for the hot auction, three of four by a hot bidder."""
    n = len(epoch)
    newest = 3 * epoch + 2
    auction = np.where(rng.random(n) < 0.5, newest // HOT * HOT, np.maximum(0, newest - rng.integers(0, 100, n)))
    bidder = np.where(
        rng.random(n) < 0.75, epoch // HOT_BIDDERS * HOT_BIDDERS, np.maximum(0, epoch - rng.integers(0, 1_000, n))
    )
    channel = rng.integers(0, 8, n)
    names = pa.array([*CHANNELS, *(f"channel-{i}" for i in range(4))])
    return pa.table(
        {
            "auction": FIRST_AUCTION + auction,
            "bidder": FIRST_PERSON + bidder,
            "price": prices(rng, n),
            "channel": names.take(pa.array(channel)),
            "url": pa.array(
                [f"https://www.nexmark.com/a{i % 7}/b{i % 11}/item.htm?query=1&channel_id={i}" for i in channel]
            ),
            "ts": instants(at),
        }
    )


def prices(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return prices in cents: ten to the power of a uniform number up to six, in dollars."""
    return np.round(10 ** (rng.random(n) * 6) * 100).astype("int64")


def instants(at: np.ndarray) -> pa.Array:
    """Return microseconds as instants."""
    return pa.array(at, pa.timestamp("us", "UTC"))


@dataclass(frozen=True)
class House:
    """The three streams of the auction house."""

    person: sq.Stream
    auction: sq.Stream
    bid: sq.Stream

    @property
    def open_auctions(self) -> sq.Stream:
        """Auctions from their start until they expire."""
        opened = self.auction.with_columns(since=sq.start())
        return opened.alter_lifetime(duration=sq.col("expires") - sq.col("since"))


Query = Callable[[House], sq.Stream]
QUERIES: dict[str, tuple[Query, str, bool]] = {}
"""Each query by name: as streamq has it, its answer as SQL, and True if that is what the history holds in the end."""


def query(sql: str, *, changes: bool = False) -> Callable[[Query], Query]:
    """Register a query by its name, with its answer in SQL; ``changes``: True if the answer changes as events come."""

    def registered(of: Query) -> Query:
        QUERIES[of.__name__] = (of, sql, changes)
        return of

    return registered


@query("SELECT auction, bidder, 0.908D * price AS price FROM bid")
def q1(h: House) -> sq.Stream:
    """Prices in another currency."""
    return h.bid.select("auction", "bidder", price=sq.col("price") * 0.908)


@query("SELECT auction, price FROM bid WHERE auction % 123 = 0")
def q2(h: House) -> sq.Stream:
    """The bids on some auctions."""
    return h.bid.where(sq.col("auction") % 123 == 0).select("auction", "price")


@query(
    """SELECT name, city, state, a.id FROM auction a JOIN person p ON a.seller = p.id
       WHERE category = 10 AND state IN ('OR', 'ID', 'CA')"""
)
def q3(h: House) -> sq.Stream:
    """Who in three states sells in a category."""
    sold = h.auction.where(sq.col("category") == 10).select("id", "seller").set_duration(None)
    people = h.person.set_duration(None)
    near = people.where(sq.col("state").isin("OR", "ID", "CA")).select("name", "city", "state", seller=sq.col("id"))
    return sold.join(near, on="seller").select("name", "city", "state", "id")


@query(
    """SELECT category, avg(final) AS mean FROM (
         SELECT category, max(price) AS final FROM auction a JOIN bid b ON a.id = b.auction
         WHERE b.ts >= a.ts AND b.ts < a.expires GROUP BY a.id, category)
       GROUP BY category""",
    changes=True,
)
def q4(h: House) -> sq.Stream:
    """The mean of the highest bids, by category."""
    sold = h.open_auctions.join(h.bid.select("auction", "price"), on=[("id", "auction")]).set_duration(None)
    highest = sold.group_by("id", "category").snapshot_window().select(final=sq.max("price"))
    return highest.group_by("category").snapshot_window().select(mean=sq.avg("final"))


@query(
    """SELECT auction, n FROM (
         SELECT auction, n, rank() OVER (PARTITION BY w ORDER BY n DESC) AS place FROM (
           SELECT auction, window(ts, '10 seconds', '2 seconds') AS w, count(*) AS n FROM bid GROUP BY 1, 2))
       WHERE place = 1"""
)
def q5(h: House) -> sq.Stream:
    """The auctions with most bids in the last ten seconds."""
    counts = h.bid.group_by("auction").hopping_window("10 seconds", "2 seconds").select(n=sq.count())
    return counts.per_window().top_k(1, by="n").select("auction", "n")


@query(
    """SELECT auction, bidder, price FROM (
         SELECT *, rank() OVER (PARTITION BY window(ts, '10 seconds') ORDER BY price DESC) AS place FROM bid)
       WHERE place = 1"""
)
def q7(h: House) -> sq.Stream:
    """The highest bids of each ten seconds."""
    return h.bid.tumbling_window("10 seconds").top_k(1, by="price").select("auction", "bidder", "price")


@query(
    """SELECT DISTINCT p.id, p.name, w.start AS since FROM
         (SELECT *, window(ts, '10 seconds') AS w FROM person) p
         JOIN (SELECT seller, window(ts, '10 seconds') AS v FROM auction) a ON p.id = a.seller AND w = v"""
)
def q8(h: House) -> sq.Stream:
    """Who sells in the ten seconds of coming."""
    sellers = h.auction.group_by("seller").tumbling_window("10 seconds").select()
    new = h.person.group_by("id", "name").tumbling_window("10 seconds").select()
    return new.join(sellers, on=[("id", "seller")]).select("id", "name", since=sq.start())


@query(
    """SELECT id, seller, bidder, price FROM (
         SELECT a.id, seller, bidder, price,
           row_number() OVER (PARTITION BY a.id ORDER BY price DESC, b.ts, bidder) AS place
         FROM auction a JOIN bid b ON a.id = b.auction WHERE b.ts >= a.ts AND b.ts < a.expires)
       WHERE place = 1""",
    changes=True,
)
def q9(h: House) -> sq.Stream:
    """The winning bid of each auction."""
    sold = h.open_auctions.select("id", "seller")
    bids_made = h.bid.select("auction", "bidder", "price", at=sq.start())
    # ties go by the payload, in the order of its columns
    both = sold.join(bids_made, on=[("id", "auction")]).select("at", "bidder", "id", "seller", "price")
    best = both.set_duration(None).group_by("id").snapshot_window().top_k(1, by="price", ties="break")
    return best.select("id", "seller", "bidder", "price")


@query(
    """SELECT bidder, count(*) AS n, session_window(ts, '9999999 microseconds').start AS since FROM bid
       GROUP BY bidder, session_window(ts, '9999999 microseconds')"""
)
def q11(h: House) -> sq.Stream:
    """The bids of each bidder's sessions; Spark's go on where the next event comes when the gap is just over."""
    return h.bid.group_by("bidder").session_window("10 seconds").select(n=sq.count(), since=sq.window_start())


@query(
    """SELECT auction, bidder, 0.908D * price AS price, CASE WHEN hour(ts) BETWEEN 8 AND 18 THEN 'day' ELSE 'night' END AS part
       FROM bid WHERE 0.908D * price BETWEEN 1000000 AND 50000000"""
)
def q14(h: House) -> sq.Stream:
    """Bids of a range of prices, with the part of the day."""
    hour = sq.functions.hour(sq.start())
    part = sq.when((hour >= 8) & (hour <= 18), sq.lit("day")).otherwise(sq.lit("night"))
    priced = h.bid.select("auction", "bidder", price=sq.col("price") * 0.908, part=part)
    return priced.where(sq.col("price").between(1_000_000, 50_000_000))


@query(
    """SELECT window(ts, '1 day').start AS since, count(*) AS n, count_if(price < 10000) AS low,
         count_if(price >= 10000 AND price < 1000000) AS middle, count_if(price >= 1000000) AS high,
         count(DISTINCT bidder) AS bidders, count(DISTINCT auction) AS auctions
       FROM bid GROUP BY window(ts, '1 day')"""
)
def q15(h: House) -> sq.Stream:
    """Statistics of each day."""
    price = sq.col("price")
    return h.bid.tumbling_window("1 day").select(
        since=sq.window_start(),
        n=sq.count(),
        low=sq.count(where=price < 10_000),
        middle=sq.count(where=(price >= 10_000) & (price < 1_000_000)),
        high=sq.count(where=price >= 1_000_000),
        bidders=sq.count_distinct("bidder"),
        auctions=sq.count_distinct("auction"),
    )


@query(
    """SELECT channel, window(ts, '1 day').start AS since, count(*) AS n, count(DISTINCT bidder) AS bidders,
         count(DISTINCT auction) AS auctions FROM bid GROUP BY channel, window(ts, '1 day')"""
)
def q16(h: House) -> sq.Stream:
    """Statistics of each channel and day."""
    return (
        h.bid.group_by("channel")
        .tumbling_window("1 day")
        .select(
            since=sq.window_start(),
            n=sq.count(),
            bidders=sq.count_distinct("bidder"),
            auctions=sq.count_distinct("auction"),
        )
    )


@query(
    """SELECT auction, window(ts, '1 day').start AS since, count(*) AS n, min(price) AS low, max(price) AS high,
         avg(price) AS mean, sum(price) AS total FROM bid GROUP BY auction, window(ts, '1 day')"""
)
def q17(h: House) -> sq.Stream:
    """Statistics of each auction and day."""
    return (
        h.bid.group_by("auction")
        .tumbling_window("1 day")
        .select(
            since=sq.window_start(),
            n=sq.count(),
            low=sq.min("price"),
            high=sq.max("price"),
            mean=sq.avg("price"),
            total=sq.sum("price"),
        )
    )


@query(
    """SELECT bidder, auction, price, channel FROM (
         SELECT *, rank() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS place FROM bid)
       WHERE place = 1""",
    changes=True,
)
def q18(h: House) -> sq.Stream:
    """The last bid of each bidder on each auction."""
    return h.bid.to_signal(key=("bidder", "auction")).select("bidder", "auction", "price", "channel")


@query(
    """SELECT auction, bidder, price, place FROM (
         SELECT *, rank() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
       WHERE place <= 10""",
    changes=True,
)
def q19(h: House) -> sq.Stream:
    """The ten highest bids on each auction."""
    best = h.bid.set_duration(None).group_by("auction").snapshot_window().top_k(10, by="price")
    return best.select("auction", "bidder", "price", place=sq.col("rank"))


@query(
    """SELECT auction, bidder, price, channel, item, seller FROM bid b JOIN auction a ON b.auction = a.id
       WHERE category = 10 AND b.ts >= a.ts"""
)
def q20(h: House) -> sq.Stream:
    """Bids on auctions of a category, with the auction."""
    sold = h.auction.where(sq.col("category") == 10).set_duration(None).select("item", "seller", auction=sq.col("id"))
    return h.bid.join(sold, on="auction").select("auction", "bidder", "price", "channel", "item", "seller")


@query(
    """SELECT auction, bidder, price, channel, regexp_extract(url, 'channel_id=([0-9]+)', 1) AS number FROM bid
       WHERE url LIKE '%channel_id=%'"""
)
def q21(h: House) -> sq.Stream:
    """Bids with the channel's number."""
    number = sq.functions.regexp_extract(sq.col("url"), "channel_id=([0-9]+)", 1)
    with_number = h.bid.where(sq.col("url").like("%channel_id=%"))
    return with_number.select("auction", "bidder", "price", "channel", number=number)


@query("SELECT auction, bidder, price, split_part(url, '/', 4) AS one, split_part(url, '/', 5) AS two FROM bid")
def q22(h: House) -> sq.Stream:
    """Bids with the folders of their page."""
    folders = {
        name: sq.functions.split_part(sq.col("url"), sq.lit("/"), sq.lit(n)) for name, n in (("one", 4), ("two", 5))
    }
    return h.bid.select("auction", "bidder", "price", **folders)


def streams(spark: SparkSession, folder: Path) -> House:
    """Return the streams of the generated files, of which Spark has views of the same names."""
    frames = {name: spark.read.parquet(str(folder / name)) for name in ("person", "auction", "bid")}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return House(*(sq.points(frame, time="ts", name=name) for name, frame in frames.items()))


def by_streamq(house: House, name: str) -> DataFrame:
    """Return a query's rows by streamq, with Spark's columns: of an answer that changes, what holds in the end."""
    of, _, changes = QUERIES[name]
    rows = of(house)
    return (rows.where(sq.end().is_null()) if changes else rows).to_df().drop("start", "end")


def by_spark(spark: SparkSession, name: str) -> DataFrame:
    """Return a query's rows by Spark SQL."""
    return spark.sql(QUERIES[name][1])


def check(ours: DataFrame, theirs: DataFrame) -> int:
    """Return the number of rows, the same in both; raise AssertionError if any differs. Doubles are compared as 9 digits."""

    def plain(rows: DataFrame) -> DataFrame:
        doubles = {n: F.format_string("%.9g", F.col(n)) for n, kind in rows.dtypes if kind == "double"}
        return rows.withColumns(doubles) if doubles else rows

    ours, theirs = plain(ours).cache(), plain(theirs.select(*ours.columns)).cache()
    assert ours.exceptAll(theirs).isEmpty() and theirs.exceptAll(ours).isEmpty(), "the answers differ"
    rows = ours.count()
    ours.unpersist(), theirs.unpersist()
    return rows


def seconds(make: Callable[[], DataFrame]) -> Seconds:
    """Return the seconds to plan and compute all rows, which go nowhere."""
    began = time.perf_counter()
    make().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


@dataclass(frozen=True)
class Plan:
    """The size of a plan of Spark's: seconds to make it, and nodes, exchanges and scans of files in it."""

    seconds: Seconds
    nodes: int
    exchanges: int
    scans: int

    @staticmethod
    def of(make: Callable[[], DataFrame]) -> Plan:
        """Plan a DataFrame."""
        began = time.perf_counter()
        executed = make()._jdf.queryExecution().executedPlan()
        text = executed.toString().partition("== Initial Plan ==")[0]
        spent = time.perf_counter() - began
        names = re.findall(r"^[\s:+\-*()\d]*([A-Z]\w+)", text, re.M)
        return Plan(spent, len(names), sum("Exchange" in n for n in names), sum("Scan" in n for n in names))


def main() -> None:
    """Print a line a query: streamq's seconds, Spark's, and the ratio; or the plans."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", choices=list(QUERIES), default=list(QUERIES))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--plans", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    config = {"spark.driver.memory": "5g", "spark.sql.shuffle.partitions": 2}
    spark = sq.session("nexmark", master="local[2]", config=config)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), options.events)
        house = streams(spark, Path(folder))
        for name in options.only:
            ways = (lambda name=name: by_streamq(house, name), lambda name=name: by_spark(spark, name))
            if options.plans:
                ours, theirs = (Plan.of(way) for way in ways)
                results.append({"query": name, "streamq": asdict(ours), "spark": asdict(theirs)})
                print(f"{name:4} {ours} {theirs}", flush=True)
                continue
            rows = check(*(way() for way in ways))
            times = [[seconds(way) for way in ways] for _ in range(options.repeat)]
            ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
            results.append({"query": name, "rows": rows, "streamq": ours, "spark": theirs, "ratio": ours / theirs})
            print(f"{name:4} {rows:9,} rows  {ours:6.2f} s  {theirs:6.2f} s  {ours / theirs:5.2f}", flush=True)
    if not options.plans:
        print(f"median {statistics.median(one['ratio'] for one in results):.2f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    spark.stop()


if __name__ == "__main__":
    main()
