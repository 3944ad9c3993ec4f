"""Shape rules, a file a family. Importing this package fills `fake.registry.RULES`."""

from dyncomp.fake.rules import (  # noqa: F401
    convolution,
    copy,
    index,
    join,
    matmul,
    misc,
    normalize,
    pointwise,
    reduce,
    view,
    vision,
)
