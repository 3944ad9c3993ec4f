"""How many compiles tiny Hugging Face text models need for twelve (batch, sequence) pairs, and whether outputs equal eager's.

    python bench/text_sizes.py [--policy default|dynamic] [--backend NAME] [MODEL ...]

Wanted: at most 4 compiles by the default policy (static, sequence, batch, batch of one), at most 2 with dynamic=True.
Prints one line a model; exits with 1 if one needs more or differs.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import Any

import torch
import transformers

import dyncomp
from dyncomp import config

PAIRS = [(2, 16), (2, 24), (2, 12), (4, 12), (3, 20), (1, 20), (1, 9), (5, 30), (2, 7), (6, 24), (1, 28), (4, 16)]
LIMITS = {"default": 4, "dynamic": 2}

_BASE = dict(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=37,
    max_position_embeddings=64,
)
_LLAMA = dict(_BASE, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
_GPT = dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64)
_PAIR = dict(
    vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=37, decoder_ffn_dim=37, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    decoder_start_token_id=2,
)  # fmt: skip
_MAMBA = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=8)

# name: (model class, config class, settings)
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", "BertConfig", _BASE),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", _BASE),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        dict(vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=37, max_position_embeddings=64),
    ),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", dict(_BASE, embedding_size=16)),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", dict(_BASE, embedding_size=16)),
    "deberta": ("DebertaModel", "DebertaConfig", dict(_BASE, relative_attention=True, pos_att_type=["c2p", "p2c"])),
    "deberta_v2": (
        "DebertaV2Model",
        "DebertaV2Config",
        dict(_BASE, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8),
    ),
    "modernbert": (
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        dict(_BASE, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
    ),
    "xlnet": ("XLNetModel", "XLNetConfig", dict(vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=37)),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        dict(
            vocab_size=99, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
            window_size=8, max_position_embeddings=64,
        ),
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _BASE),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", dict(_GPT, rotary_dim=4)),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        dict(
            vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=37,
            max_position_embeddings=64, word_embed_proj_dim=32,
        ),
    ),
    "bloom": ("BloomForCausalLM", "BloomConfig", dict(vocab_size=99, hidden_size=32, n_layer=2, n_head=4)),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _LLAMA),
    "mistral": ("MistralForCausalLM", "MistralConfig", dict(_LLAMA, sliding_window=8)),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _LLAMA),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", dict(_LLAMA, head_dim=8)),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", dict(_LLAMA, head_dim=8, sliding_window=8)),
    "phi": ("PhiForCausalLM", "PhiConfig", _LLAMA),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", _LLAMA),
    "falcon": (
        "FalconForCausalLM",
        "FalconConfig",
        dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    ),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", _LLAMA),
    "mamba": ("MambaForCausalLM", "MambaConfig", _MAMBA),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config", dict(_MAMBA, num_heads=8, head_dim=8, n_groups=2, chunk_size=8)),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        dict(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, decoder_start_token_id=0),
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", _PAIR),
}  # fmt: skip


def make(name: str) -> torch.nn.Module:
    model, config, settings = MODELS[name]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()  # type: ignore[no-any-return]


def inputs(name: str, batch: int, length: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 99, (batch, length))
    given = {"input_ids": ids}
    if not name.startswith("mamba"):
        given["attention_mask"] = torch.ones(batch, length, dtype=torch.long)
    if name in ("t5", "bart"):
        given["labels"] = ids.clone()
    return given


def tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    values = output.values() if isinstance(output, dict) else output if isinstance(output, list | tuple) else ()
    return [t for value in values for t in tensors(value)]


def run(name: str, policy: str, backend: str) -> tuple[int, int, str]:
    """(compiles of the most often compiled frame, breaks, what is wrong)."""
    model = make(name)
    dyncomp.reset()
    fast = dyncomp.optimize(model, backend=backend, dynamic=True if policy == "dynamic" else None)
    made: dict[tuple[str, int], int] = {}
    dyncomp.api.context_of(fast).observers.append(
        lambda record: made.update({(record.filename, record.line): made.get((record.filename, record.line), 0) + 1})
    )
    for batch, length in PAIRS:
        given = inputs(name, batch, length)
        with torch.no_grad():
            want, got = tensors(model(**given)), tensors(fast(**given))
        if len(want) != len(got):
            return 0, 0, f"{len(got)} outputs instead of {len(want)}"
        for mine, theirs in zip(got, want, strict=True):
            if mine.shape != theirs.shape or mine.stride() != theirs.stride() or mine.dtype != theirs.dtype:
                return 0, 0, f"{tuple(mine.shape)} {mine.stride()} instead of {tuple(theirs.shape)} {theirs.stride()}"
            if not torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4, equal_nan=True):
                return 0, 0, f"({batch}, {length}): off by {(mine - theirs).abs().max():.2e}"
    return max(made.values(), default=0), dyncomp.stats().graph_breaks, ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--policy", choices=list(LIMITS), default="default")
    parser.add_argument("--backend", default="codegen")
    options = parser.parse_args()
    bad = 0
    for name in options.models:
        start = time.perf_counter()
        try:
            with warnings.catch_warnings(), config.patch(strict=True, remember_sizes=False, automatic_dynamic=True):
                warnings.simplefilter("ignore")
                compiles, breaks, wrong = run(name, options.policy, options.backend)
        except Exception as error:  # noqa: BLE001  a table of all models
            compiles, breaks, wrong = 0, 0, f"{type(error).__name__}: {error}"[:300]
        bad += bool(wrong) or compiles > LIMITS[options.policy]
        seconds = time.perf_counter() - start
        print(f"{name:12} {compiles:2} compiles {breaks:2} breaks {seconds:5.1f} s  {wrong}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
