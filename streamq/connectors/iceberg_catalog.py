"""The catalog of an Iceberg table, as pyiceberg's configuration and options describe it, and the table's name in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True)
class IcebergPlace:
    """A table ``identifier`` in the catalog with this ``name`` and these ``properties``, which may be secrets."""

    name: str
    properties: Mapping[str, str] = field(repr=False)
    identifier: str

    def catalog(self) -> Catalog:
        """Connect to the catalog; raises errors of pyiceberg, and of the client of its kind."""
        from pyiceberg.catalog import load_catalog

        return load_catalog(self.name, **self.properties)


def iceberg_place(table: str, options: Mapping[str, str]) -> IcebergPlace:
    """Return the place of "namespace.table" in the default catalog, or of "catalog.namespace.table".

    ``options`` go before the catalog's properties in pyiceberg's configuration, which is read now: workers need none.
    """
    from pyiceberg.utils.config import Config

    config = Config()
    catalog, identifier = table.split(".", 1) if table.count(".") > 1 else (config.get_default_catalog_name(), table)
    configured = {name: str(value) for name, value in (config.get_catalog_config(catalog) or {}).items()}
    return IcebergPlace(catalog, configured | dict(options), identifier)
