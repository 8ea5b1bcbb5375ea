"""The packages that drivers, workers and Connect clients need, in the versions that streamq's installed metadata asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata

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
        """The versions of it that streamq asks for."""
        return _requirements().get(canonicalize_name(self.package), Requirement(self.package))

    def __str__(self) -> str:
        bounds = sorted(map(str, self.requirement.specifier), reverse=True)
        return self.package + ",".join(bounds)

    def accepts(self, version: str) -> bool:
        """Return True if the version, of which only the numbers count, is one that streamq asks for."""
        return self.requirement.specifier.contains(_release(version))


@cache
def _requirements() -> dict[str, Requirement]:
    """Streamq's own requirements, optional ones included, by package; none where it runs from sources and is not installed."""
    try:
        lines = metadata.requires("streamq") or []
    except metadata.PackageNotFoundError:
        return {}
    requirements = [Requirement(line) for line in lines]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def _release(version: str) -> Version:
    """The numbers of a version; some vendors write versions that Python's rules do not allow."""
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
    PackageNeed("googleapis-common-protos", "google.rpc"),
    PackageNeed("zstandard", "zstandard"),
)
