"""The command line: `framework train`, `resume` and `evaluate`, configured by the YAML of configs/.

Only `build.py` imports JAX. Everything else runs before it, so that `--help` is quick and a wrong
configuration is refused before a device is touched.
"""
