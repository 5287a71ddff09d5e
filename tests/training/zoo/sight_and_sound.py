"""Models of ``transformers`` for pictures, sounds and series, in tiny configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers
from torch import Tensor, nn

from training.zoo import entry
from training.zoo.entry import CLASSES, ENTRIES, Entry, Logits, numbers, pictures

_BLOCKS: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_VIT: dict[str, Any] = {**_BLOCKS, "image_size": 16, "patch_size": 4, "num_channels": 3}
_STAGES: dict[str, Any] = {"hidden_sizes": [8, 16], "depths": [1, 1]}
_WINDOWS: dict[str, Any] = {
    "embed_dim": 8,
    "depths": [1, 1],
    "num_heads": [2, 2],
    "window_size": 2,
    "image_size": 16,
    "patch_size": 2,
}
_PYRAMID: dict[str, Any] = {**_STAGES, "num_encoder_blocks": 2, "patch_sizes": [3, 3], "strides": [2, 2]}
_WAVES = {
    **_BLOCKS,
    "conv_dim": (8, 8),
    "conv_stride": (4, 2),
    "conv_kernel": (8, 3),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 8,
    "num_feat_extract_layers": 2,
}
_UNMASKED = {"frozen": ("mask_token",)}
_UNFIT = {"alone": "the rules do not fit it"}
_MIXED = "replace_batch_norm(model) puts GroupNorm in its place"


def seen(kind: str, maker: str, told: dict[str, Any] | None = None, size: int = 16, **sizes: Any) -> Entry:
    """A classifier of pictures."""

    def build() -> nn.Module:
        config = transformers.AutoConfig.for_model(kind, num_labels=CLASSES, **sizes)
        return Logits(getattr(transformers, f"{maker}ForImageClassification")(config), "pixel_values")

    given = {"name": kind, "family": "transformers", "records": pictures(size), "loss": entry.of_classes}
    return Entry(build=build, **{**given, **(told or {})})


def heard(name: str, maker: str, records: entry.Records, column: str, config: Callable[[], Any], **told: Any) -> Entry:
    """A classifier of sounds."""
    build = lambda: Logits(getattr(transformers, maker)(config()), column)  # noqa: E731 - a builder, not a name
    return Entry(name=name, family="transformers", build=build, records=records, loss=entry.of_classes, **told)


def waves(kind: str, maker: str, **told: Any) -> Entry:
    config = lambda: transformers.AutoConfig.for_model(kind, num_labels=CLASSES, **_WAVES)  # noqa: E731
    return heard(kind, f"{maker}ForSequenceClassification", numbers(100), "input_values", config, **told)


class Forecast(nn.Module):
    """PatchTST answers with other names."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        config = transformers.PatchTSTConfig(
            num_input_channels=2,
            num_targets=CLASSES,
            context_length=16,
            patch_length=4,
            patch_stride=4,
            d_model=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            ffn_dim=32,
            use_cls_token=True,
            **changes,
        )
        self.inner = transformers.PatchTSTForClassification(config)

    def forward(self, values: Tensor) -> Tensor:
        return self.inner(past_values=values).prediction_logits


def _whisper() -> Any:
    return transformers.WhisperConfig(
        d_model=16,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_mel_bins=8,
        max_source_positions=10,
        vocab_size=ENTRIES,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        classifier_proj_size=8,
        num_labels=CLASSES,
    )


def _spectrogram() -> Any:
    strides: dict[str, Any] = {"frequency_stride": 4, "time_stride": 4, "max_length": 16, "num_mel_bins": 8}
    return transformers.ASTConfig(**_BLOCKS, **strides, patch_size=4, num_labels=CLASSES)


ENTRIES_OF_SIGHT: tuple[Entry, ...] = (
    seen("vit", "ViT", **_VIT),
    seen("deit", "DeiT", **_VIT),
    seen("dinov2", "Dinov2", told=_UNMASKED, **_VIT),
    seen("dinov2", "Dinov2", told={"name": "dinov2, as it comes", "refused": "mask_token"}, **_VIT),
    seen("dinov2_with_registers", "Dinov2WithRegisters", told=_UNMASKED, **_VIT),
    seen("beit", "Beit", told={"alone": "draws random numbers"}, **_VIT, use_relative_position_bias=True),
    seen("swin", "Swin", told=_UNFIT, **_WINDOWS),
    seen("swinv2", "Swinv2", told=_UNFIT, **_WINDOWS),
    seen("convnext", "ConvNext", **_STAGES, num_stages=2),
    seen("convnextv2", "ConvNextV2", **_STAGES, num_stages=2),
    seen("focalnet", "FocalNet", **_WINDOWS | {"focal_levels": [1, 1], "focal_windows": [3, 3]}),
    seen(
        "segformer",
        "Segformer",
        **_PYRAMID,
        sr_ratios=[2, 1],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
    ),
    seen("poolformer", "PoolFormer", **_PYRAMID, padding=[1, 1]),
    seen(
        "clip",
        "CLIP",
        told={"frozen": ("post_layernorm",)},
        vision_config=_VIT,
        text_config={"vocab_size": ENTRIES, **_BLOCKS},
    ),
    seen(
        "siglip",
        "Siglip",
        told={"frozen": ("vision_model.head",)},
        vision_config=_VIT,
        text_config={"vocab_size": ENTRIES, **_BLOCKS},
    ),
    seen(
        "resnet",
        "ResNet",
        told={"refused": _MIXED},
        embedding_size=8,
        **_STAGES,
        layer_type="basic",
    ),
    seen(
        "mobilevit",
        "MobileViT",
        told={"refused": _MIXED},
        size=32,
        hidden_sizes=[8, 12, 16],
        neck_hidden_sizes=[4, 4, 8, 8, 8, 8, 16],
        num_attention_heads=2,
        patch_size=2,
        image_size=32,
    ),
    seen(
        "levit",
        "Levit",
        told={"refused": _MIXED},
        size=32,
        image_size=32,
        hidden_sizes=[8, 16, 16],
        num_attention_heads=[1, 2, 2],
        depths=[1, 1, 1],
        key_dim=[4, 4, 4],
    ),
    waves("wav2vec2", "Wav2Vec2", **_UNFIT),
    waves("hubert", "Hubert", **_UNFIT),
    heard(
        "whisper",
        "WhisperForAudioClassification",
        numbers(8, 20),
        "input_features",
        _whisper,
        alone="modeling_whisper.py line",
    ),
    heard("audio spectrogram", "ASTForAudioClassification", numbers(16, 8), "input_values", _spectrogram),
    Entry(
        name="patchtst",
        family="transformers",
        build=lambda: Forecast(norm_type="layernorm"),
        records=numbers(16, 2),
        loss=entry.of_classes,
    ),
    Entry(
        name="patchtst, batch normalisation",
        family="transformers",
        build=Forecast,
        records=numbers(16, 2),
        loss=entry.of_classes,
        refused=_MIXED,
    ),
)
