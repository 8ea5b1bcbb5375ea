"""The keys under which Spark groups the envelopes of buckets, chosen so that tasks get equally many buckets.

Spark sends a key to the task ``hash(key) mod tasks``. For consecutive numbers these are uneven: of eight buckets, two tasks would
get five and three, and two buckets would share a task.
"""

from __future__ import annotations

from itertools import count

SEED = 42
"""The seed of Spark's hash partitioning."""
WORD = 0xFFFFFFFF


def bucket_keys(buckets: int) -> list[int]:
    """Return the key of each bucket, by its number: the least integer whose hash is that number modulo ``buckets``.

    So every task gets equally many buckets if the number of tasks divides that of buckets. The keys depend on nothing else, as
    state lies under them.
    """
    keys: dict[int, int] = {}
    for key in count():
        keys.setdefault(spark_hash(key) % buckets, key)
        if len(keys) == buckets:
            break
    return [keys[number] for number in range(buckets)]


def spark_hash(key: int) -> int:
    """Return Spark's hash of an int: Murmur3 of its four bytes, as an int of 32 bits with a sign."""
    mixed = SEED ^ (_rotated(key * 0xCC9E2D51 & WORD, 15) * 0x1B873593 & WORD)
    mixed = (_rotated(mixed, 13) * 5 + 0xE6546B64 & WORD) ^ 4
    for by, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        mixed = (mixed ^ mixed >> shift) * by & WORD
    mixed ^= mixed >> 16
    return mixed - (mixed >> 31 << 32)


def _rotated(word: int, by: int) -> int:
    """Return a word of 32 bits rotated to the left."""
    return (word << by | word >> 32 - by) & WORD
