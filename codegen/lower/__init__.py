"""Lowering: ATen nodes become tensors that say how each element is computed. See `tensor` for the forms,
`graph` for the entry."""

from dyncomp.codegen.lower import (  # noqa: F401  (importing a file registers its lowerings)
    activation,
    activation_gradients,
    batch_norm,
    casts,
    factories,
    gradients,
    indexing,
    losses,
    norms,
    part_gradients,
    pointwise,
    pool,
    reductions,
    select,
    shapes,
    softmax,
    views,
)
