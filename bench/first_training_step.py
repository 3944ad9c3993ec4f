"""One process of test_training.py: the time of the first training step. `first_training_step.py SIDE MODEL`"""

import sys
import time

from training_models import make, step


def main(side, name):
    module, inputs = make(name)
    if side == "dyncomp":
        import dyncomp as compiler

        compiled = compiler.optimize(module)
    else:
        import torch

        compiled = torch.compile(module)
    start = time.perf_counter()
    step(compiled, module, inputs)
    print(f"SECONDS {time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
