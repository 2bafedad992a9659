"""Settings of the whole test run: 8 devices on the CPU, and shape checks in the framework's own calls."""

import os

# Before JAX is imported by anybody.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import hypothesis
from jaxtyping import install_import_hook

# The annotations of layers are checked in every call that a test makes.
install_import_hook(["framework.nn", "framework.trackers"], "beartype.beartype")

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
