"""One process of test_training.py: the most memory that some training steps take. `training_memory.py SIDE MODEL OPTIMIZER`"""

import pathlib
import re
import sys

import torch
from training_models import make, step

STEPS = 5
OPTIMIZERS = {
    "none": None,
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-4, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-5),
}


def main(side, name, optimizer):
    module, inputs = make(name)
    make_optimizer = OPTIMIZERS[optimizer]
    updates = make_optimizer(module.parameters()) if make_optimizer else None
    call = module
    if side == "dyncomp":
        import dyncomp

        call = dyncomp.optimize(module)
    elif side == "torch.compile":
        call = torch.compile(module)
    for _ in range(STEPS):
        step(call, module, inputs)
        if updates is not None:
            updates.step()
    # of this program alone; `ru_maxrss` would count the process that started it
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    kilobytes = re.search(r"VmHWM:\s+(\d+) kB", status).group(1)
    print(f"PEAK {int(kilobytes) * 1024}")


if __name__ == "__main__":
    main(*sys.argv[1:])
