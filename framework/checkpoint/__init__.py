"""Checkpoints of modules on disk: written in the background, complete or absent, restored in place with exact bits."""
