"""Shape rules, a file a family. Importing this package fills `fake.registry.RULES`."""

from dyncomp.fake.rules import (  # noqa: F401
    attention,
    convolution,
    copy,
    factory,
    fused_optimizers,
    gradients,
    index,
    join,
    layouts,
    like,
    matmul,
    misc,
    normalize,
    pointwise,
    pool,
    reduce,
    spaced,
    view,
    vision,
)
