"""Milliseconds a token of greedy decoding, eager against compiled, and how many compiles it takes.

    python bench/decoding.py [gpt2|llama ...]

Two sizes of each model; a cache that grows (DynamicCache) and one of fixed size (StaticCache). The two sides alternate, one
thread; printed are medians. Exits with 1 if tokens differ or more than 4 compiles are needed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from typing import Any

import torch
import transformers

import dyncomp
from dyncomp import config

STEPS, LONGEST, ROUNDS, MOST = 64, 128, 4, 4


def gpt2(layers: int, width: int) -> torch.nn.Module:
    settings = transformers.GPT2Config(
        vocab_size=1000, n_embd=width, n_layer=layers, n_head=8, n_positions=LONGEST, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(settings).eval()  # type: ignore[no-any-return]


def llama(layers: int, width: int) -> torch.nn.Module:
    settings = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=width, num_hidden_layers=layers, num_attention_heads=8, num_key_value_heads=4,
        intermediate_size=2 * width, max_position_embeddings=LONGEST, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(settings).eval()  # type: ignore[no-any-return]


MODELS = {"gpt2": gpt2, "llama": llama}


def decode(model: Any, ids: torch.Tensor, cache: Any, times: list[float]) -> torch.Tensor:
    tokens = []
    for _ in range(STEPS):
        start = time.perf_counter()
        output = model(ids, past_key_values=cache, use_cache=True)
        times.append(1e3 * (time.perf_counter() - start))
        cache, ids = output.past_key_values, output.logits[:, -1].argmax(-1, keepdim=True)
        tokens.append(ids)
    return torch.cat(tokens, 1)


def measure(name: str, layers: int, width: int, kind: str) -> bool:
    """Prints a line; True if tokens and compiles are as wanted."""
    torch.manual_seed(0)
    model = MODELS[name](layers, width)

    def cache() -> Any:
        if kind == "static":
            return transformers.StaticCache(config=model.config, max_cache_len=LONGEST)
        return transformers.DynamicCache(config=model.config)

    dyncomp.reset()
    fast = dyncomp.optimize(model)
    eager: list[float] = []
    ours: list[float] = []
    same = True
    with torch.no_grad():
        for _ in range(2):
            for parameter in model.parameters():
                parameter.mul_(2)  # so that tokens differ from step to step
        ids = torch.randint(3, 1000, (1, 8))
        decode(fast, ids, cache(), [])
        compiles = dyncomp.stats().frames
        for _ in range(ROUNDS):
            same &= torch.equal(decode(model, ids, cache(), eager), decode(fast, ids, cache(), ours))
    a, b = statistics.median(eager), statistics.median(ours)
    print(f"{name:6} {layers} layers of {width:3}  {kind:8} {compiles} compiles  eager {a:7.3f} ms  ours {b:7.3f} ms  "
          f"{a / b:4.1f}x  {'' if same else 'OTHER TOKENS'}", flush=True)  # fmt: skip
    return same and compiles <= MOST


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=list(MODELS))
    models = parser.parse_args().models
    torch.set_num_threads(1)
    good = True
    with warnings.catch_warnings(), config.patch(strict=True, remember_sizes=False):
        warnings.simplefilter("ignore")
        for name in models:
            for layers, width in ((2, 64), (4, 256)):
                for kind in ("growing", "static"):
                    good &= measure(name, layers, width, kind)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
