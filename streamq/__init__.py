"""streamq: temporal queries over late, corrected and lasting events, on Spark.

A public name is loaded from its module when it is first used; ``__init__.pyi`` beside this file lists them all.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
