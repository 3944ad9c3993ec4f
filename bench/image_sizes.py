"""How many compiles tiny Hugging Face vision models need for six image sizes, and whether outputs equal eager's.

    python bench/image_sizes.py [--policy default|dynamic] [--backend NAME] [MODEL ...]

Wanted: at most 4 compiles by the default policy (static, image size, batch, batch of one), at most 2 with dynamic=True.
Models whose position embeddings have one length are told to interpolate them. mobilenet_v2 needs two more: it pads by
whether height and width are even at each level, a branch of its own code.
Prints one line a model; exits with 1 if one needs more or differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from varying_sizes import count, table

_VIT = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, image_size=32, patch_size=8
)
_STAGES = dict(hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1])
_INTERPOLATE = {"interpolate_pos_encoding": True}

# name: (model class, config class, settings, more arguments of a call)
MODELS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "vit": ("ViTForImageClassification", "ViTConfig", _VIT, _INTERPOLATE),
    "deit": ("DeiTModel", "DeiTConfig", _VIT, _INTERPOLATE),
    "beit": ("BeitModel", "BeitConfig", dict(_VIT, use_relative_position_bias=True), _INTERPOLATE),
    "dinov2": ("Dinov2Model", "Dinov2Config", _VIT, {}),
    "swin": (
        "SwinModel",
        "SwinConfig",
        dict(image_size=32, patch_size=2, embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=2),
        _INTERPOLATE,
    ),
    "resnet": (
        "ResNetForImageClassification",
        "ResNetConfig",
        dict(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic"),
        {},
    ),
    "convnext": ("ConvNextModel", "ConvNextConfig", dict(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2), {}),
    "mobilenet_v2": ("MobileNetV2Model", "MobileNetV2Config", dict(image_size=32, depth_multiplier=0.25), {}),
    "efficientnet": (
        "EfficientNetModel",
        "EfficientNetConfig",
        dict(image_size=32, width_coefficient=0.25, depth_coefficient=0.25, hidden_dim=320),
        {},
    ),
    "segformer": (
        "SegformerModel",
        "SegformerConfig",
        dict(_STAGES, num_attention_heads=[1, 1, 1, 1], decoder_hidden_size=16),
        {},
    ),
    "poolformer": ("PoolFormerModel", "PoolFormerConfig", _STAGES, {}),
}  # fmt: skip

SIZES = [(2, 64, 64), (2, 96, 64), (4, 80, 112), (1, 96, 96), (3, 64, 128), (1, 112, 80)]


def make(name: str) -> torch.nn.Module:
    model, settings_class, settings, _ = MODELS[name]
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, settings_class)(**settings))
    return made.eval()  # type: ignore[no-any-return]


def calls(name: str) -> Iterator[dict[str, Any]]:
    for batch, height, width in SIZES:
        yield {"pixel_values": torch.randn(batch, 3, height, width), **MODELS[name][3]}


def run(name: str, policy: str, backend: str) -> tuple[int, int, str]:
    return count(make(name), calls(name), policy, backend)


if __name__ == "__main__":
    sys.exit(table(list(MODELS), run))
