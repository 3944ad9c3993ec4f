"""Composed operations, composed from symbolic sizes; see `registry.py`."""

from dyncomp.fake.composites import gradient, images, index, linalg, otherwise  # noqa: F401  (fill the registry)
