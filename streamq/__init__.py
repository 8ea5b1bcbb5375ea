"""streamq: temporal queries over late, corrected and lasting events, on Spark.

A public name is loaded from its module when it is first used; ``__init__.pyi`` beside this file lists them all.
"""

from typing import Any

import lazy_loader

__version__ = "0.1.0"

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def load_ipython_extension(shell: Any) -> None:
    """Register the cell magic ``%%cedr``; ``%load_ext streamq`` in a notebook calls this."""
    from streamq.patterns.pattern import load_magic

    load_magic(shell)


def __getattr__(name: str) -> Any:
    """Load a public name from its module; raise AttributeError, with the nearest public name, for an unknown one."""
    try:
        return _load(name)
    except AttributeError:
        if name.startswith("_"):
            raise
    from streamq.plan.hints import for_name

    raise AttributeError(for_name(name, __all__), name=name) from None
