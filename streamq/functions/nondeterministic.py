"""Functions whose value differs from call to call, or from partition to partition."""

from __future__ import annotations

from streamq.functions.built_in import BuiltIn

RAND = BuiltIn("rand", deterministic=False)
RANDN = BuiltIn("randn", deterministic=False)
RANDOM = BuiltIn("random", deterministic=False)
RANDSTR = BuiltIn("randstr", deterministic=False)
UNIFORM = BuiltIn("uniform", deterministic=False)
UUID = BuiltIn("uuid", deterministic=False)
SHUFFLE = BuiltIn("shuffle", deterministic=False)
MONOTONICALLY_INCREASING_ID = BuiltIn("monotonically_increasing_id", deterministic=False)
SPARK_PARTITION_ID = BuiltIn("spark_partition_id", deterministic=False)
INPUT_FILE_NAME = BuiltIn("input_file_name", deterministic=False)
