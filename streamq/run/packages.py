"""The packages that drivers, workers and Connect clients need, in the versions that streamq's installed metadata requires."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


@dataclass(frozen=True)
class PackageNeed:
    """A package that an interpreter must be able to import under the name ``module``."""

    package: str
    module: str

    @property
    def requirement(self) -> Requirement:
        """The versions that streamq requires."""
        return _requirements().get(canonicalize_name(self.package), Requirement(self.package))

    def __str__(self) -> str:
        bounds = sorted(map(str, self.requirement.specifier), reverse=True)
        return self.package + ",".join(bounds)

    def accepts(self, version: str) -> bool:
        """Return True if streamq's requirement includes the version, of which only the numbers count."""
        return self.requirement.specifier.contains(_release(version))


@cache
def _requirements() -> dict[str, Requirement]:
    """Return streamq's requirements, including optional ones, by package; empty if it is not installed."""
    # its imports would be a twentieth of those of all public names
    from importlib import metadata

    try:
        lines = metadata.requires("streamq") or []
    except metadata.PackageNotFoundError:
        return {}
    requirements = [Requirement(line) for line in lines]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def _release(version: str) -> Version:
    """Return the numbers of a version, without suffixes like "rc1".

    Of a vendor's version that is not legal by Python's rules they are the numbers that it begins with, or 0.
    """
    try:
        return Version(Version(version).base_version)
    except InvalidVersion:
        numbers = re.match(r"\d+(\.\d+)*", version)
        return Version(numbers[0] if numbers else "0")


WORKER_NEEDS = (
    PackageNeed("pandas", "pandas"),
    PackageNeed("pyarrow", "pyarrow"),
    PackageNeed("protobuf", "google.protobuf"),
)
DRIVER_NEEDS = (PackageNeed("pyspark", "pyspark"), *WORKER_NEEDS)
CONNECT_NEEDS = (
    PackageNeed("grpcio", "grpc"),
    PackageNeed("grpcio-status", "grpc_status"),
    PackageNeed("googleapis-common-protos", "google.rpc.status_pb2"),
    PackageNeed("zstandard", "zstandard"),
)
