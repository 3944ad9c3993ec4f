"""Lowering: ATen nodes become tensors that say how each element is computed. See `tensor` for the forms,
`graph` for the entry."""

from dyncomp.codegen.lower import (  # noqa: F401  (importing a file registers its lowerings)
    activation,
    casts,
    factories,
    gradients,
    indexing,
    norms,
    pointwise,
    pool,
    reductions,
    select,
    shapes,
    softmax,
    views,
)
