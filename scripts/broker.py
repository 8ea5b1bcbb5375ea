"""A broker of Kafka in one process of its own, on free ports of this computer."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

JARS = Path(sys.prefix) / "kafka"
"""The broker, as ``scripts/kafka.sh`` fetches it."""

HEAP = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
log.dirs={folder}/data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
log.cleaner.dedupe.buffer.size=20971520
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Broker:
    """A broker that keeps its messages in a folder, so that it may go away and come back."""

    def __init__(self, folder: Path):
        self.folder, self.port = folder, free_port()
        self.servers = f"127.0.0.1:{self.port}"
        settings = PROPERTIES.format(port=self.port, controller=free_port(), folder=folder)
        self.settings = folder / "server.properties"
        self.settings.write_text(settings)
        identity = ("--standalone", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(self.settings))
        format_command = [*self._java, "kafka.tools.StorageTool", "format", *identity]
        formatting = subprocess.run(format_command, capture_output=True, text=True)
        if formatting.returncode:
            raise AssertionError(formatting.stderr[-2000:])

    @property
    def _java(self) -> list[str]:
        java = shutil.which("java")
        assert java is not None
        return [java, *HEAP, "-cp", f"{JARS}/*"]

    def start(self) -> None:
        """Start it, and return when it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([*self._java, "kafka.Kafka", str(self.settings)], stdout=log, stderr=log)
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def create(self, topic: str, partitions: int = 2, **config: str) -> None:
        client = AdminClient({"bootstrap.servers": self.servers})
        new = NewTopic(
            topic, partitions, replication_factor=1, config={k.replace("_", "."): v for k, v in config.items()}
        )
        client.create_topics([new])[topic].result(30)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Make it so many partitions of a topic."""
        client = AdminClient({"bootstrap.servers": self.servers})
        client.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

    def forbid(self, topic: str, *operations: AclOperation) -> None:
        """Take rights to a topic from everybody, who has all others."""
        client = AdminClient({"bootstrap.servers": self.servers})
        rules = [(one, AclPermissionType.DENY) for one in operations] + [(AclOperation.ALL, AclPermissionType.ALLOW)]
        bindings = [
            AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*", operation, permission)
            for operation, permission in rules
        ]
        for rule in client.create_acls(bindings).values():
            rule.result(30)

    def settle(self, topic: str, partitions: int = 1) -> None:
        """Return when readers see all that is committed; a producer hears of its commit a moment before."""
        client = AdminClient({"bootstrap.servers": self.servers})
        asked = {TopicPartition(topic, one): OffsetSpec.latest() for one in range(partitions)}
        ends: list[list[int]] = [[0], [1]]
        while ends[0] != ends[1]:
            levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
            answers = [client.list_offsets(asked, isolation_level=level) for level in levels]
            ends = [[answer[place].result(30).offset for place in asked] for answer in answers]

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the messages of a partition before an offset, as retention does."""
        client = AdminClient({"bootstrap.servers": self.servers})
        place = TopicPartition(topic, partition, offset)
        client.delete_records([place])[place].result(30)

    def send(self, topic: str, values: Iterable[bytes | None], partition: int = 0) -> None:
        """Send messages to a partition, in order."""
        producer = Producer({"bootstrap.servers": self.servers})
        for number, value in enumerate(values):
            if number % 50_000 == 0:
                producer.flush(30)
            producer.produce(topic, value, key=str(number).encode(), partition=partition)
        assert producer.flush(30) == 0


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker that runs until the end of the block."""
    one = Broker(folder)
    one.start()
    try:
        yield one
    finally:
        one.kill()
