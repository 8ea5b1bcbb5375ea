"""The demo of Kafka, from topic to topic of a broker that it starts."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from scripts.demo_kafka import agreement, main


def test_batch_and_streaming_agree(spark: SparkSession, plain: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    printed = capsys.readouterr().out
    assert "'trips|dropped': 4, 'trips|adjusted': 0, 'trips|invalid': 2, 'trips|duplicates': 30" in printed
    assert """field fare is text, and no double, as {'_malformed': '{"n": 17, "at": "2024""" in printed
    assert printed.endswith("Batch and streaming agree on all 39 rows.\n")


def test_answers_that_differ_are_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert agreement([{"n": 1}], [{"n": 2}]) == 1
    assert "DISAGREE:\n  only in batch: n=1\n  only in streaming: n=2\n" in capsys.readouterr().out
