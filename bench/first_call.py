"""One first call in this process, timed without the imports: `python first_call.py SIDE CASE` prints seconds.

bench/test_compile_time.py starts it with empty (or warm) cache folders.
"""

import sys
import time

import torch


def sin_cos():
    return (lambda x: torch.sin(torch.cos(x))), (torch.ones(4),), {}


def bert():
    import transformers

    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig()).eval()
    ids = torch.randint(0, 30000, (1, 128))
    return model, (ids,), {"attention_mask": torch.ones_like(ids)}


def main():
    side, case = sys.argv[1:]
    target, args, kwargs = {"sin_cos": sin_cos, "bert": bert}[case]()
    if side == "dyncomp":
        import dyncomp

        compile_one = dyncomp.optimize
    else:
        compile_one = torch.compile
    with torch.no_grad():
        start = time.perf_counter()
        compile_one(target)(*args, **kwargs)
        print("SECONDS", time.perf_counter() - start)
        if side == "dyncomp":
            print("KERNELS", dyncomp.stats().kernels, "FROM CACHE", dyncomp.stats().kernel_cache_hits)


if __name__ == "__main__":
    main()
