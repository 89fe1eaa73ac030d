"""The families: a table of recipes, each a layout and traits over shared blocks, keyed by architecture name.

A family says which rule gives the mixer and which the MLP of each layer, what its definition fixes beside the config,
how its layer kinds are called, and how its draft module runs. Names of layer kinds and drafting methods follow
inference-sim/blis-catalog (6d986729) where it has the family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pykernel.derive import blocks, deci, latent, layouts, recurrent
from pykernel.derive.blocks import Builder, Part, Traits
from pykernel.derive.layouts import Layout

MIXERS: dict[str, Callable[[Builder], Part]] = {
    "none": blocks.no_mlp,
    "attention": blocks.attention,
    "sliding": blocks.sliding,
    "wide_global": blocks.wide_global,
    "block_sparse": blocks.block_sparse,
    "deci_attention": deci.attention,
    "latent": latent.latent_attention,
    "latent_indexed": lambda b: latent.latent_attention(b, indexed=True),
    "compressed_0": lambda b: latent.compressed_attention(b, 0),
    "compressed_4": lambda b: latent.compressed_attention(b, 4),
    "compressed_128": lambda b: latent.compressed_attention(b, 128),
    "gated_delta": recurrent.gated_delta,
    "kimi_delta": recurrent.kimi_delta,
    "mamba1": recurrent.mamba1,
    "mamba2": recurrent.mamba2,
    "mamba2_model_dtype": recurrent.mamba2_model_dtype,
    "attention_and_mamba2": recurrent.attention_and_mamba2,
}

MLPS: dict[str, Callable[[Builder], Part]] = {
    "none": blocks.no_mlp,
    "dense": blocks.dense,
    "moe": blocks.moe,
    "dense_and_moe": blocks.dense_and_moe,
    "deci_mlp": deci.mlp,
}

MIXER_IDS = {
    "sliding": "swa",
    "wide_global": "full",
    "latent": "attn",
    "latent_indexed": "attn",
    "deci_attention": "attn",
    "compressed_0": "window",
    "compressed_4": "csa4",
    "compressed_128": "csa128",
    "gated_delta": "gdn",
    "kimi_delta": "kda",
    "mamba1": "mamba",
    "mamba2": "mamba",
    "mamba2_model_dtype": "mamba",
    "attention_and_mamba2": "hybrid",
    "block_sparse": "sparse_attn",
}
"""How a mixer is called in the id of a layer kind; `attention` depends on the model's others."""

MLP_IDS = {"dense_and_moe": "moe", "deci_mlp": "dense"}


@dataclass(frozen=True)
class Draft:
    """The draft module: the engine's method, and the layer it runs where that is none of the stack's.

    `kind`: mixer and MLP of a layer of its own; `own`: whether that is a kind of its own even where the stack has the
    same; `only_if_mixed`: only where some layers of the stack lack an indexer; `projection`: whether it joins embedding
    and hidden state by nodes of its own; `key`: where the count is.
    """

    method: str
    kind: tuple[str, str] | None = None
    own: bool = True
    only_if_mixed: bool = False
    projection: bool = False
    key: str = "drafts"


@dataclass(frozen=True)
class Family:
    """One recipe."""

    name: str
    architectures: tuple[str, ...]
    mixers: Layout
    mlps: Layout = field(default_factory=lambda: layouts.every("dense"))
    traits: Traits = field(default_factory=Traits)
    ids: Mapping[tuple[str, str], str] = field(default_factory=dict)
    draft: Draft | None = None
    ignores_drafts: bool = False
    states: tuple[str, ...] = ()
    """Facts that a config has to state, null where the model has none of it, because absence says nothing."""
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of a component's modules where they are others than usual."""


FULL = layouts.every("attention")
QWEN_WINDOWS = layouts.windowed(layouts.above_the_first, unstated=False)
LISTED_WINDOWS = layouts.windowed(layouts.undescribed)
MTP = Draft("mtp")

FAMILIES: tuple[Family, ...] = (
    # ---- dense -------------------------------------------------------------------------------------------------
    Family("llama", ("LlamaForCausalLM", "SmolLM3ForCausalLM", "SeedOssForCausalLM", "ArceeForCausalLM"), FULL),
    Family(
        "mistral",
        ("MistralForCausalLM", "Mistral3ForConditionalGeneration", "MinistralForCausalLM"),
        layouts.windowed(layouts.in_every_layer),
    ),
    Family(
        "qwen2",
        ("Qwen2ForCausalLM", "Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"),
        QWEN_WINDOWS,
        traits=Traits(qkv_bias=True),
    ),
    Family("mimo", ("MiMoForCausalLM",), QWEN_WINDOWS, traits=Traits(qkv_bias=True), draft=MTP),
    Family(
        "qwen3",
        ("Qwen3ForCausalLM", "Qwen3VLForConditionalGeneration"),
        QWEN_WINDOWS,
        traits=Traits(qk_norm="head"),
    ),
    Family("gemma", ("GemmaForCausalLM",), FULL, traits=Traits(tied=True)),
    Family(
        "gemma2",
        ("Gemma2ForCausalLM",),
        layouts.windowed(layouts.in_even_layers),
        traits=Traits(norms="sandwich", tied=True),
        states=("window",),
    ),
    Family(
        "gemma3",
        ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
        layouts.windowed(layouts.but_every_nth),
        traits=Traits(norms="sandwich", qk_norm="head", tied=True),
        states=("window",),
    ),
    Family(
        "gemma4",
        ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"),
        layouts.gemma4_mixers,
        layouts.gemma4_mlps,
        Traits(norms="sandwich", qk_norm="head", tied=True),
        modules={"experts": ("experts.down_proj", "moe.experts.down_proj"), "shared": ()},
    ),
    Family(
        "phi",
        ("PhiForCausalLM",),
        FULL,
        traits=Traits(norms="parallel", norm_vectors=2, qkv_bias=True, o_bias=True, mlp_bias=True, gated_mlp=False),
    ),
    Family("phi3", ("Phi3ForCausalLM",), layouts.windowed(layouts.in_every_layer)),
    Family("granite", ("GraniteForCausalLM",), FULL),
    Family("olmo", ("OlmoForCausalLM",), FULL, traits=Traits(norm_vectors=0)),
    Family("olmo2", ("Olmo2ForCausalLM",), FULL, traits=Traits(norms="post", qk_norm="full")),
    Family("olmo3", ("Olmo3ForCausalLM",), LISTED_WINDOWS, traits=Traits(norms="post", qk_norm="full")),
    Family("command-r", ("CohereForCausalLM",), FULL, traits=Traits(norms="parallel", tied=True)),
    Family(
        "command-r7b",
        ("Cohere2ForCausalLM",),
        layouts.windowed(layouts.but_every_nth),
        traits=Traits(norms="parallel", tied=True),
        states=("window",),
    ),
    Family("glm", ("GlmForCausalLM",), FULL, traits=Traits(qkv_bias=True)),
    Family("chatglm", ("ChatGLMModel", "ChatGLMForConditionalGeneration"), FULL, traits=Traits(qkv_bias=True)),
    Family("glm4", ("Glm4ForCausalLM",), FULL, traits=Traits(norms="sandwich", qkv_bias=True)),
    Family("nemotron", ("NemotronForCausalLM",), FULL, traits=Traits(norm_vectors=2, gated_mlp=False)),
    Family(
        "starcoder2",
        ("Starcoder2ForCausalLM",),
        layouts.windowed(layouts.in_every_layer),
        traits=Traits(norm_vectors=2, qkv_bias=True, o_bias=True, mlp_bias=True, gated_mlp=False),
    ),
    Family("exaone4", ("Exaone4ForCausalLM",), LISTED_WINDOWS, traits=Traits(norms="post", qk_norm="head")),
    Family("deci", ("DeciLMForCausalLM",), layouts.every("deci_attention"), layouts.every("deci_mlp")),
    # ---- mixtures of experts -----------------------------------------------------------------------------------
    Family(
        "mixtral",
        ("MixtralForCausalLM",),
        layouts.windowed(layouts.in_every_layer),
        layouts.every("moe"),
        Traits(expert_width_key="mlp_width"),
    ),
    Family(
        "qwen2-moe",
        ("Qwen2MoeForCausalLM",),
        QWEN_WINDOWS,
        layouts.experts_at_a_step,
        Traits(qkv_bias=True, shared_gate=True),
        states=("shared_width",),
    ),
    Family(
        "qwen3-moe",
        ("Qwen3MoeForCausalLM", "Qwen3VLMoeForConditionalGeneration"),
        QWEN_WINDOWS,
        layouts.experts_at_a_step,
        Traits(qk_norm="head"),
    ),
    Family(
        "granite-moe",
        ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"),
        FULL,
        layouts.every("moe"),
        Traits(expert_width_key="mlp_width"),
    ),
    Family(
        "gpt-oss",
        ("GptOssForCausalLM",),
        LISTED_WINDOWS,
        layouts.every("moe"),
        Traits(
            qkv_bias=True,
            o_bias=True,
            router_bias=True,
            expert_bias=True,
            sinks=True,
            unquantized="bf16",
            expert_width_key="mlp_width",
        ),
    ),
    Family(
        "llama4",
        ("Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
        FULL,
        layouts.experts_interleaved,
        Traits(shared_experts=1, dense_width_key="intermediate_size_mlp", expert_width_key="mlp_width"),
    ),
    Family(
        "deepseek",
        (
            "DeepseekV2ForCausalLM",
            "DeepseekV3ForCausalLM",
            "DeepseekV32ForCausalLM",
            "KimiK2ForCausalLM",
            "KimiK25ForConditionalGeneration",
        ),
        layouts.sparse_latent,
        layouts.experts_after_dense,
        Traits(router_bias=True),
        draft=Draft("deepseek_mtp", ("latent_indexed", "moe"), only_if_mixed=True),
        states=("shared_experts", "q_lora_rank"),
    ),
    Family(
        "glm5",
        ("GlmMoeDsaForCausalLM",),
        layouts.sparse_latent,
        layouts.experts_after_dense,
        Traits(fused_latent_norm=True, router_bias=True),
        draft=Draft("deepseek_mtp", ("latent_indexed", "moe"), only_if_mixed=True),
        states=("shared_experts", "q_lora_rank", "index_topk"),
    ),
    Family(
        "deepseek-v4",
        ("DeepseekV4ForCausalLM",),
        layouts.compressed_layers,
        layouts.every("moe"),
        Traits(router_bias=True),
        draft=Draft("deepseek_mtp", ("compressed_0", "moe")),
        states=("shared_experts",),
    ),
    Family(
        "glm4-moe",
        ("Glm4MoeForCausalLM",),
        FULL,
        layouts.experts_after_dense,
        Traits(qk_norm="head", router_bias=True),
        draft=Draft("glm4_moe_mtp"),
        states=("shared_experts",),
    ),
    Family(
        "glm4-moe-lite",
        ("Glm4MoeLiteForCausalLM",),
        layouts.every("latent"),
        layouts.experts_after_dense,
        Traits(router_bias=True),
        draft=Draft("glm4_moe_mtp"),
        states=("shared_experts", "q_lora_rank"),
    ),
    Family(
        "minimax-m2",
        ("MiniMaxM2ForCausalLM",),
        layouts.uniform_attention_list,
        layouts.every("moe"),
        Traits(qk_norm="full", router_bias=True, expert_width_key="mlp_width"),
        ignores_drafts=True,
    ),
    Family(
        "minimax-m3",
        ("MiniMaxM3ForCausalLM", "MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"),
        layouts.block_sparse_layers,
        layouts.experts_after_dense,
        Traits(
            qk_norm="head",
            router_bias=True,
            dense_width_key="dense_intermediate_size",
            expert_width_key="mlp_width",
        ),
        ids={("attention", "dense"): "dense"},
        draft=Draft("minimax_m3_mtp", key="num_mtp_modules"),
        states=("shared_experts",),
    ),
    Family(
        "inkling",
        ("InklingForConditionalGeneration",),
        layouts.local_layers,
        layouts.experts_after_any_dense,
        Traits(
            qk_norm="head",
            router_bias=True,
            dense_width_key="dense_intermediate_size",
            expert_width_key="mlp_width",
        ),
        draft=Draft("inkling_mtp"),
    ),
    Family(
        "mimo-v2",
        ("MiMoV2FlashForCausalLM",),
        layouts.hybrid_layer_pattern,
        layouts.experts_after_dense,
        Traits(router_bias=True),
        draft=MTP,
    ),
    Family(
        "step3",
        ("Step3p5ForCausalLM", "Step3p7FlashForCausalLM"),
        LISTED_WINDOWS,
        layouts.experts_after_dense,
        Traits(qk_norm="head", router_bias=True),
        draft=MTP,
        states=("shared_width",),
    ),
    # ---- hybrids -----------------------------------------------------------------------------------------------
    Family(
        "qwen3-next",
        ("Qwen3NextForCausalLM",),
        layouts.delta_or_attention,
        layouts.experts_at_a_step,
        Traits(qk_norm="head", shared_gate=True, output_gate=True),
        draft=Draft("qwen3_next_mtp"),
        states=("shared_width",),
    ),
    Family(
        "qwen3.5-moe",
        ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"),
        layouts.delta_or_attention,
        layouts.experts_at_a_step,
        Traits(qk_norm="head", shared_gate=True, output_gate=True, mixer_inputs=False),
        draft=Draft("qwen3_5_mtp", ("attention", "moe"), own=False),
        states=("shared_width",),
    ),
    Family(
        "qwen3.5",
        ("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"),
        layouts.delta_or_attention,
        traits=Traits(qk_norm="head", output_gate=True, mixer_inputs=False),
        draft=Draft("qwen3_5_mtp"),
    ),
    Family(
        "nemotron-h",
        ("NemotronHForCausalLM",),
        layouts.nemotron_mixers,
        layouts.nemotron_mlps,
        Traits(norms="single", gated_mlp=False, router_bias=True, mixer_inputs=False),
        ids={
            ("mamba2", "none"): "mamba",
            ("none", "moe"): "moe",
            ("attention", "none"): "attention",
            ("none", "dense"): "mlp",
        },
        draft=Draft("nemotron_h_mtp"),
    ),
    Family(
        "kimi-linear",
        ("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration"),
        layouts.delta_or_latent,
        layouts.experts_after_dense,
        Traits(fused_latent_norm=True, router_bias=True),
        ids={("latent", "moe"): "mla_moe", ("latent", "dense"): "mla_dense"},
        draft=Draft("kimi_k3_mtp"),
        states=("shared_experts", "q_lora_rank"),
    ),
    Family(
        "glm5-next",
        ("Glm5NextForConditionalGeneration",),
        layouts.delta_or_sparse_latent,
        layouts.experts_after_dense,
        Traits(norms="hyper", fused_latent_norm=True, router_bias=True, state_head=True),
        ids={("latent_indexed", "moe"): "mla_moe", ("latent_indexed", "dense"): "mla_dense"},
        draft=Draft("glm5_next_mtp", ("latent_indexed", "moe"), projection=True),
        states=("shared_experts", "q_lora_rank", "index_topk"),
    ),
    Family(
        "granite-hybrid",
        ("GraniteMoeHybridForCausalLM",),
        layouts.mamba_or_attention,
        layouts.experts_if_any,
        Traits(dense_width_key="shared_intermediate_size", expert_width_key="mlp_width"),
    ),
    Family("bamba", ("BambaForCausalLM",), layouts.mamba_or_attention),
    Family("falcon-h1", ("FalconH1ForCausalLM",), layouts.every("attention_and_mamba2")),
    Family(
        "jamba",
        ("JambaForCausalLM",),
        layouts.mamba1_or_attention,
        layouts.experts_at_a_period,
        Traits(expert_width_key="mlp_width"),
        states=("experts",),
    ),
    Family(
        "mamba2",
        ("Mamba2ForCausalLM",),
        layouts.every("mamba2_model_dtype"),
        layouts.every("none"),
        ids={("mamba2_model_dtype", "none"): "mamba"},
    ),
)

BY_ARCHITECTURE = {architecture: family for family in FAMILIES for architecture in family.architectures}
