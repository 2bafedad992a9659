"""Stateful model training on JAX: mutable objects that are real pytrees, lifted into compiled steps.

The public names stand in the stub file beside this one and are imported when they are first used, so that the command
line can show its help and refuse a wrong configuration without loading JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
