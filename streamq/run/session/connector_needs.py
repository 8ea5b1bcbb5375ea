"""What connectors need beside streamq itself: a package of Python, a package of Spark's; a row of a table for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamq.run.failure import is_sparks
from streamq.run.session.findings import Finding, PackageNeed, this_interpreter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ConnectorNeed:
    """The needs of the connector ``name``, which is also the extra of streamq that brings ``packages``, by what each is for.

    ``artifact``: what Spark reads it with, from Maven, "" if it needs nothing. ``releases`` has its release for a release of
    PySpark, where that is not the one of the same version. A session that has it reads ``name`` with ``options``.
    """

    name: str
    packages: Mapping[str, PackageNeed]
    artifact: str = ""
    releases: Mapping[tuple[int, int], str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def coordinates(self) -> str:
        """The artifact with the release that fits this PySpark."""
        from pyspark import __version__

        major, minor = (int(part) for part in __version__.split(".")[:2])
        return f"{self.artifact}:{self.releases.get((major, minor), __version__)}"

    def is_in(self, spark: SparkSession) -> bool:
        """Return True if a session reads the connector's format."""
        try:
            # through Spark Connect nothing is looked up before the schema is asked for
            _ = spark.read.format(self.name).options(**self.options).load().schema
        except Exception as error:
            if not is_sparks(error):
                raise
            return False
        return True

    def finding(self, spark: SparkSession | None) -> Finding:
        """Return what there is of its needs; what is missing is no problem, as long as nobody uses the connector."""
        texts = []
        if self.artifact and spark is None:
            texts = [f"sq.session({self.name}=True) brings {self.coordinates}"]
        elif self.artifact and spark is not None:
            missing = f"the session has it not: sq.session({self.name}=True), in a new process, before another one"
            texts = [f"{self.coordinates} fits, and {'the session has it' if self.is_in(spark) else missing}"]
        installed = this_interpreter(self.packages.values())
        for purpose, need in self.packages.items():
            missing = f'without {need.package}, {purpose}: pip install "streamq[{self.name}]"'
            texts.append(installed.packages([need]) or missing)
        return Finding(self.name, "; ".join(texts))


KAFKA = ConnectorNeed(
    "kafka",
    {
        "for its sink and without Spark": PackageNeed("confluent-kafka", "confluent_kafka"),
        "for Avro": PackageNeed("fastavro", "fastavro"),
    },
    artifact="org.apache.spark:spark-sql-kafka-0-10_2.13",
    releases={(4, 1): "4.1.1", (4, 2): "4.2.0", (4, 3): "4.2.0"},
    options={"kafka.bootstrap.servers": "localhost:9092", "subscribe": "topic"},
)
CONNECTORS = (
    KAFKA,
    ConnectorNeed("delta", {"for its sink and without Spark": PackageNeed("deltalake", "deltalake")}),
    ConnectorNeed("iceberg", {"for its sink and without Spark": PackageNeed("pyiceberg", "pyiceberg")}),
    ConnectorNeed("postgres", {"for its sink": PackageNeed("psycopg", "psycopg")}),
    ConnectorNeed("sql", {"for its sink": PackageNeed("sqlalchemy", "sqlalchemy")}),
)
