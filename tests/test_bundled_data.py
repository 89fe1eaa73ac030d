"""The bundled catalog, registry and scenarios, held to the figures that their publishers state.

These checks sit apart from the tests of `pykernel.documents`: they read the files as plain text trees (every scalar
stays a string) and import nothing of the package, so a loader that misreads a file cannot hide a wrong file. Expected
numbers are written here, with where they were published; the files are never compared to themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

DATA = Path(__file__).resolve().parents[1] / "pykernel" / "data"
MODELS = DATA / "catalog" / "models"
HARDWARE = DATA / "catalog" / "hardware"
REGISTRY = DATA / "registry" / "coefficients"
SCENARIOS = DATA / "scenarios"

# inference-sim/blis-registry v0.1.1 (0e1e3693), counts that the release states about itself.
ENTRIES = {
    "cost-model-primitives": 140,
    "cost-model-collectives": 864,
    "cost-model-attention": 60,
    "cost-model-memory": 14,
    "cost-model-recurrent": 36,
    "cost-model-host-overheads": 7,
}
METHODS = {"measured": 816, "assumed": 223, "vendor_spec": 81, "not_charged": 1}

# Same release: entries whose scope includes the chip. A set has the count of its column for every chip named.
CHIP_TOTALS = {
    "cost-model-primitives": {
        "l40s": 16, "a100-sxm": 12, "a100-80": 20, "h100": 16, "h200": 16,
        "b200": 18, "b300": 18, "gb200-nvl72": 18, "gb300": 18,
    },
    "cost-model-collectives": {
        "l40s": 96, "a100-sxm": 96, "a100-80": 96, "h100": 96, "h200": 96,
        "b200": 96, "b300": 96, "gb200-nvl72": 96, "gb300": 96,
    },
    "cost-model-attention": {
        "l40s": 6, "a100-sxm": 6, "a100-80": 6, "h100": 8, "h200": 8,
        "b200": 8, "b300": 8, "gb200-nvl72": 8, "gb300": 8,
    },
    "cost-model-memory": {
        "l40s": 14, "a100-sxm": 14, "a100-80": 14, "h100": 14, "h200": 14,
        "b200": 14, "b300": 14, "gb200-nvl72": 14, "gb300": 14,
    },
    "cost-model-recurrent": {"h100": 6, "h200": 6, "b200": 6, "b300": 6, "gb200-nvl72": 6, "gb300": 6},
    "cost-model-host-overheads": {
        "l40s": 7, "a100-sxm": 7, "a100-80": 7, "h100": 7, "h200": 7,
        "b200": 7, "b300": 7, "gb200-nvl72": 7, "gb300": 7,
    },
}  # fmt: skip

# Same release, one value from each family and corner of the sets: (set, entry, chip) -> value as printed.
SPOT_VALUES = {
    ("cost-model-primitives", "gemm_eps_max_fp8", "h200"): "0.736",
    ("cost-model-primitives", "gemm_m_half_fp8", "h200"): "113",
    ("cost-model-primitives", "gemm_eps_max_nvfp4", "b300"): "0.501",
    ("cost-model-primitives", "moe_routing_imbalance_median", "a100-sxm"): "1.001",
    ("cost-model-primitives", "engine_workspace_bytes", "l40s"): "3758096384",
    ("cost-model-collectives", "collective_floor_all_gather_fp16_2rank_h100", "h100"): "5.14",
    ("cost-model-collectives", "collective_peak_rate_all_gather_int8_16rank_gb300", "gb300"): "763305.5",
    ("cost-model-attention", "attention_decode_floor", "h200"): "13.5",
    ("cost-model-attention", "attention_decode_rate_mla", "h200"): "2928000",
    ("cost-model-attention", "attention_decode_rate_swa", "a100-80"): "416539",
    ("cost-model-memory", "activation_buffer_count_moe_8rank", "h200"): "10",
    ("cost-model-memory", "cudagraph_capture_bytes_piecewise", "h100"): "858783744",
    ("cost-model-recurrent", "recurrent_decode_rate_kda", "h100"): "0.235",
    ("cost-model-host-overheads", "host_launch_per_kernel", "b200"): "3.2",
}

# inference-sim/blis-catalog 6d986729: layers, parameters and active parameters in units of 1e9. The published totals
# count matmuls, experts and lm_head, plus one input embedding in the first figure; no norms, no speculator.
PUBLISHED_SIZES = {
    "codellama-34b-instruct-hf": (48, 33.7, 33.5),
    "deepseek-v2-lite": (27, 15.7, 2.4),
    "deepseek-v3": (61, 670.9, 36.5),
    "deepseek-v4-pro": (61, 1572.2, 48.1),
    "glm-5.2-fp8": (78, 743.3, 40.2),
    "glm-5.2": (78, 743.3, 40.2),
    "glm-5.3-flash": (45, 313.3, 16.7),
    "glm-5.3": (78, 743.3, 40.2),
    "glm-5": (78, 743.8, 40.7),
    "gpt-oss-120b": (36, 116.8, 5.1),
    "granite-5.0-230b-rl-preview": (72, 230.5, 10.0),
    "inkling": (66, 974.1, 38.6),
    "kimi-k2.5": (61, 1026.2, 31.5),
    "kimi-k3": (93, 2778.9, 103.6),
    "llama-2-70b-hf": (80, 69.0, 68.7),
    "llama-2-7b-hf": (32, 6.7, 6.6),
    "llama-3.1-70b-instruct": (80, 70.6, 69.5),
    "llama-3.1-8b-instruct": (32, 8.0, 7.5),
    "llama-4-scout-17b-16e-instruct-fp8-dynamic": (48, 101.7, 10.1),
    "minimax-m2.5": (62, 228.6, 10.4),
    "minimax-m2.7": (62, 228.6, 10.4),
    "minimax-m3": (60, 426.1, 24.7),
    "mistral-nemo-instruct-2407": (40, 12.2, 11.6),
    "mixtral-8x22b-v0.1": (56, 140.6, 39.0),
    "mixtral-8x7b-v0.1": (32, 46.7, 12.7),
    "nemotron-3-ultra-550b-a55b-bf16": (108, 535.3, 41.0),
    "nemotron-3-ultra-550b-a55b-nvfp4": (108, 535.3, 41.0),
    "nemotron-3.5-lightning-30b-a3b-bf16": (52, 30.9, 2.6),
    "nemotron-3.5-lightning-30b-a3b-nvfp4": (52, 30.9, 2.6),
    "qwen2.5-7b-instruct": (28, 7.6, 7.1),
    "qwen3-14b": (40, 14.8, 14.0),
    "qwen3-30b-a3b": (48, 30.5, 3.0),
    "qwen3.5-397b-a17b": (60, 391.9, 11.9),
    "yi-34b": (60, 34.4, 33.9),
}

# Their experts are two matrices, which the published totals know and the published graphs have no way to say.
TWO_MATRIX_EXPERTS = {name for name in PUBLISHED_SIZES if name.startswith("nemotron-3")}

# The one model of the catalog that has no public repository.
UNPUBLISHED = {"granite-5.0-230b-rl-preview"}

# Datasheets as published by inference-sim/blis-catalog 6d986729:
# dense 16-bit, FP8 and NVFP4 TFLOP/s, HBM TB/s, GiB, GB/s on the node, SMs. "" = the key is left out.
CHIPS = {
    "a100-80": ("312", "0", "", "2.039", "80.0", "300", "108"),
    "a100-sxm": ("312", "0", "", "2.039", "80.0", "300", "108"),
    "l40s": ("362.05", "733.0", "", "0.864", "48.0", "32", "142"),
    "h100": ("989.5", "1979.0", "", "3.35", "80.0", "450", "132"),
    "h200": ("989.5", "1979.0", "", "4.8", "141.0", "450", "132"),
    "b200": ("2250.0", "4500.0", "9000.0", "7.7", "180.0", "900", "148"),
    "b300": ("2250.0", "4500.0", "14000.0", "7.75", "268.6", "900", "148"),
    "gb200-nvl72": ("2500.0", "5000.0", "10000.0", "8.0", "173.2", "900", "148"),
    "gb300": ("2500.0", "5000.0", "15000.0", "8.0", "277.5", "900", "152"),
}
CHIP_KEYS = ("TFlopsPeak", "TFlopsFP8", "TFlopsNVFP4", "BwPeakTBs", "MemoryGiB", "IntraNodeBwGBps", "SMCount")
RACK_KEYS = {"GPUsPerNode": "4", "GPUsPerRack": "72", "IntraRackBwGBps": "900"}

# Bundles that examples and goldens refer to by name.
NAMED_SCENARIOS = {
    "codellama-34b-h100-tp2",
    "deepseek-v2-lite-h100-tp1",
    "deepseek-v3-b200-fp4-tp4",
    "deepseek-v3-h200-fp8-tp8",
    "deepseek-v4-pro-b200-fp4-tp8",
    "glm-5-h200-tp8",
    "glm-5.2-b300-tp8",
    "glm-5.2-fp8-h200-tp8",
    "glm-5.3-b200-tp8",
    "glm-5.3-flash-h200-tp4",
    "gpt-oss-120b-h100-fp4-tp2",
    "gpt-oss-120b-h200-fp4-tp8",
    "granite-5.0-h200-ep16",
    "inkling-b300-fp8-tp8",
    "kimi-k2.5-b200-fp4-tp4",
    "kimi-k3-b300-tp8",
    "llama-2-70b-a100-80-tp4",
    "llama-2-7b-a100-80-tp1",
    "llama-3.1-70b-h100-fp8-tp4",
    "llama-3.1-70b-h200-fp8-tp4",
    "llama-3.1-8b-h100-tp1",
    "llama-3.1-8b-l40s-fp8-tp1",
    "llama-4-scout-h100-fp8-tp4",
    "minimax-m2.5-b200-fp4-tp2-ep4-dp2",
    "minimax-m2.5-gb300-tp4",
    "minimax-m2.5-h200-disagg",
    "minimax-m2.5-h200-ep16",
    "minimax-m2.5-h200-ep8",
    "minimax-m2.5-h200-tp8",
    "minimax-m2.7-h200-tp4",
    "minimax-m3-b300-fp4-tp2-ep4-dp2",
    "mistral-nemo-l40s-tp2",
    "mixtral-8x22b-h100-tp8",
    "mixtral-8x7b-h100-tp4",
    "nemotron-3-ultra-bf16-b300-tp8",
    "nemotron-3-ultra-h100-tp8-mtp",
    "nemotron-3.5-lightning-bf16-h100-tp2",
    "nemotron-3.5-lightning-nvfp4-b200-tp1",
    "qwen2.5-7b-l40s-tp1",
    "qwen3-14b-h100-tp1",
    "qwen3-30b-a3b-h100-tp2",
    "qwen3-30b-a3b-h200-dp4",
    "qwen3-30b-a3b-h200-ep8",
    "qwen3.5-397b-a17b-b300-fp4-tp4",
    "yi-34b-h100-tp2",
}

ALL_FILES = sorted(DATA.joinpath(room, path) for room in ("catalog", "registry", "scenarios")
                   for path in DATA.joinpath(room).rglob("*.yaml"))  # fmt: skip
Entry = tuple[str, dict[str, Any]]
Registry = dict[str, list[Entry]]

LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def read(path: Path) -> Any:
    """The one document of a file, every scalar as text."""
    return yaml.load(path.read_text(encoding="utf-8"), LOADER)


def entries(set_name: str) -> list[Entry]:
    """(name, body) of every entry of a coefficient set, in file order."""
    return [next(iter(item.items())) for item in read(REGISTRY / f"{set_name}.yaml")["coefficients"]]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return {name: entries(name) for name in ENTRIES}


def every_entry(registry: Registry) -> Iterator[Entry]:
    for rows in registry.values():
        yield from rows


def scope_key(body: dict[str, Any]) -> frozenset[tuple[str, frozenset[str]]]:
    return frozenset((dimension, frozenset(values)) for dimension, values in body["scope"].items())


def layers_of(graph: dict[str, Any]) -> list[str]:
    stack = graph["stack"]
    repeated = stack.get("pattern", []) * int(stack.get("repeat", 0))
    return [*stack.get("prologue", []), *repeated, *stack.get("epilogue", [])]


def node_parameters(node: dict[str, Any], matrices: int = 3) -> tuple[int, int]:
    """(held, used by one token) parameters of a node whose experts are so many matrices."""
    if node["op"] == "GEMM":
        size = int(node["n"]) * int(node["k"])
        return size, size
    if node["op"] == "GroupedGEMM":
        width = int(node["n"])
        own = node["role"] == "shared_experts"  # these read the hidden state, whatever latent size is stated
        expert = matrices * width * int(node["k"] if own else node.get("latent_size", node["k"]))
        shared_width = int(node.get("shared_intermediate_size", width))
        shared = int(node.get("shared_experts", 0)) * matrices * shared_width * int(node["k"])
        return int(node["experts"]) * expert + shared, int(node["top_k"]) * expert + shared
    return 0, 0


# ------------------------------------------------------------------------------------------------- every file


@pytest.mark.parametrize("path", ALL_FILES, ids=lambda path: str(path.relative_to(DATA)))
def test_a_file_opens_with_its_source(path: Path) -> None:
    head = "".join(line for line in path.read_text(encoding="utf-8").splitlines(True)[:12] if line.startswith("#"))
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert "Source:" in head or "Settings:" in head


def keys_repeated(node: yaml.Node) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        counts = Counter(key.value for key, _ in node.value)
        yield from (f"{key} at line {node.start_mark.line + 1}" for key, count in counts.items() if count > 1)
        for _, value in node.value:
            yield from keys_repeated(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from keys_repeated(value)


@pytest.mark.parametrize("path", ALL_FILES, ids=lambda path: str(path.relative_to(DATA)))
def test_no_mapping_repeats_a_key(path: Path) -> None:
    roots = yaml.compose_all(path.read_text(encoding="utf-8"), LOADER)
    assert [found for root in roots for found in keys_repeated(root)] == []


# --------------------------------------------------------------------------------------------- coefficient sets


FITTED = {f"calibrated-{part}" for part in CHIP_TOTALS["cost-model-recurrent"]} | {
    "calibrated-a100-sxm", "calibrated-l40s", "calibrated-host",
}  # fmt: skip


def test_the_registry_holds_exactly_the_six_sets_and_those_that_are_fitted_here() -> None:
    assert {path.stem for path in REGISTRY.iterdir()} == set(ENTRIES) | FITTED
    for name in ENTRIES:
        document = read(REGISTRY / f"{name}.yaml")
        assert (document["kind"], document["name"]) == ("CoefficientSet", name)


def test_entry_counts_are_those_of_the_release(registry: Registry) -> None:
    assert {name: len(rows) for name, rows in registry.items()} == ENTRIES
    assert sum(1 for _ in every_entry(registry)) == 1121
    assert Counter(body["method"] for _, body in every_entry(registry)) == METHODS


def test_each_chip_has_the_entries_that_the_release_gives_it(registry: Registry) -> None:
    found = {
        name: dict(Counter(chip for _, body in rows for chip in body["scope"]["hardware"]))
        for name, rows in registry.items()
    }
    assert found == CHIP_TOTALS


def test_no_entry_is_stated_twice_for_one_scope(registry: Registry) -> None:
    for rows in registry.values():
        repeats = Counter((name, scope_key(body)) for name, body in rows)
        assert [key for key, count in repeats.items() if count > 1] == []


def test_the_a100_80_descriptor_entries_that_overlap_agree(registry: Registry) -> None:
    """Eight names apply to a100-80 twice, under different scopes; the later wins, so a difference would matter."""
    values: dict[str, list[str]] = {}
    for name, body in registry["cost-model-primitives"]:
        if "a100-80" in body["scope"]["hardware"]:
            values.setdefault(name, []).append(body["value"])
    twice = {name: found for name, found in values.items() if len(found) > 1}
    assert len(twice) == 8
    assert all(len(found) == 2 and found[0] == found[1] for found in twice.values())


def test_every_entry_brings_what_its_method_demands(registry: Registry) -> None:
    for name, body in every_entry(registry):
        method = body["method"]
        assert body["fitted"] in ("true", "false"), name
        assert method == "measured" or body["fitted"] == "false", name
        assert (float(body["value"]) == 0.0) == (method == "not_charged"), name
        assert method == "measured" or body["rationale"].strip(), name
        if method in ("measured", "vendor_spec"):
            assert body["sources"], name
            assert all(set(source) == {"kind", "cite", "role"} and source["cite"] for source in body["sources"]), name
        if "ci95" in body:
            low, high = map(float, body["ci95"])
            assert low <= float(body["value"]) <= high, name


def test_intervals_are_stated_only_where_published(registry: Registry) -> None:
    stated = {(name, *body["ci95"]) for name, body in every_entry(registry) if "ci95" in body}
    assert stated == {
        ("moe_routing_imbalance_median", "0.812", "1.908"),
        ("host_launch_per_kernel", "3.1", "3.3"),
    }


@pytest.mark.parametrize(("set_name", "entry", "chip"), SPOT_VALUES)
def test_a_published_value_is_kept_to_the_digit(registry: Registry, set_name: str, entry: str, chip: str) -> None:
    found = [body["value"] for name, body in registry[set_name] if name == entry and chip in body["scope"]["hardware"]]
    assert found == [SPOT_VALUES[set_name, entry, chip]]


def test_collectives_are_complete_for_every_chip_and_width(registry: Registry) -> None:
    """Three parts, four operations, two formats, four widths, nine chips; the name ends in the chip of the scope."""
    pattern = re.compile(
        r"collective_(floor|transition_rate|peak_rate)_(all_gather|all_reduce|alltoall|reduce_scatter)"
        r"_(fp16|int8)_(2|4|8|16)rank_(\w+)"
    )
    seen = set()
    for name, body in registry["cost-model-collectives"]:
        match = pattern.fullmatch(name)
        assert match, name
        assert [match[5]] == [chip.replace("-", "_") for chip in body["scope"]["hardware"]], name
        seen.add(match.groups())
    assert len(seen) == 3 * 4 * 2 * 4 * 9


def test_a_collective_never_gets_cheaper_with_width_or_faster_than_its_peak(registry: Registry) -> None:
    value = {name: float(body["value"]) for name, body in registry["cost-model-collectives"]}
    for name, figure in value.items():
        if "_transition_rate_" in name:
            assert figure <= value[name.replace("_transition_rate_", "_peak_rate_")], name
        if "_floor_" in name and "_16rank_" not in name:
            width = int(re.search(r"_(\d+)rank_", name)[1])  # type: ignore[index]
            assert figure <= value[name.replace(f"_{width}rank_", f"_{2 * width}rank_")], name


# ------------------------------------------------------------------------------------- chips, fabrics, storage


def test_the_catalog_holds_exactly_the_nine_chips() -> None:
    assert {path.stem for path in HARDWARE.iterdir()} == set(CHIPS)


@pytest.mark.parametrize("name", CHIPS)
def test_a_chip_states_its_datasheet_figures(name: str) -> None:
    expected = {key: figure for key, figure in zip(CHIP_KEYS, CHIPS[name], strict=True) if figure}
    expected["Provenance"] = "vendor_spec"
    if name in ("gb200-nvl72", "gb300"):
        expected |= RACK_KEYS
    assert read(HARDWARE / f"{name}.yaml") == expected


def test_l40s_carries_the_dense_fp8_rate() -> None:
    """NVIDIA's L40S datasheet prints 733 | 1466; the second counts sparsity."""
    assert float(read(HARDWARE / "l40s.yaml")["TFlopsFP8"]) == 733.0


def test_fabrics_are_line_rate_over_eight() -> None:
    """400, 200 and 100 Gb/s ports; only the Ethernet one copies through the CPU."""
    found = {path.stem: read(path) for path in (DATA / "catalog" / "networks").iterdir()}
    assert found == {
        "ib-400g": {"Provenance": "vendor_spec", "InterNodeBwGBps": "50", "RDMA": "true"},
        "roce-200g": {"Provenance": "vendor_spec", "InterNodeBwGBps": "25", "RDMA": "true"},
        "ethernet-100gbe": {"Provenance": "vendor_spec", "InterNodeBwGBps": "12.5", "RDMA": "false"},
    }


def test_storage_tiers_are_the_published_five() -> None:
    """inference-sim/blis-catalog 6d986729: MB/s read, MB/s write, microseconds."""
    found = {name: tuple(body.values()) for name, body in read(DATA / "catalog" / "devices" / "storage.yaml").items()}
    assert found == {
        "cpu_dram": ("20000", "20000", "1"),
        "nvme_gen4": ("7000", "5000", "80"),
        "nvme_gen3": ("3500", "3000", "100"),
        "s3": ("1000", "1000", "30000"),
        "sata_ssd": ("550", "500", "150"),
    }


# ----------------------------------------------------------------------------------------------- model graphs


def test_the_catalog_holds_exactly_the_published_models() -> None:
    assert {path.name for path in MODELS.iterdir()} == set(PUBLISHED_SIZES)


@pytest.mark.parametrize("name", PUBLISHED_SIZES)
def test_a_graph_is_derived_from_the_file_it_names(name: str) -> None:
    origin = read(MODELS / name / "graph.yaml")["derived_from"]
    digest = hashlib.sha256((MODELS / name / origin["path"]).read_bytes()).hexdigest()
    assert origin == {"format": "facts_yaml", "path": "facts.yaml", "sha256": digest, "deriver_version": "1"}


@pytest.mark.parametrize("name", sorted(UNPUBLISHED))
def test_a_model_without_a_repository_names_none(name: str) -> None:
    assert {path.name for path in (MODELS / name).iterdir()} == {"facts.yaml", "graph.yaml"}
    assert not {"repo", "revision"} & set(read(MODELS / name / "facts.yaml"))


@pytest.mark.parametrize("name", sorted(set(PUBLISHED_SIZES) - UNPUBLISHED))
def test_a_model_names_one_checkpoint(name: str) -> None:
    source = read(MODELS / name / "model.yaml")["source"]
    facts = read(MODELS / name / "facts.yaml")
    assert (source["repo"], source["revision"]) == (facts["repo"], facts["revision"])
    assert re.fullmatch(r"[0-9a-f]{40}", source["revision"])
    assert {read(MODELS / name / file)["name"] for file in ("model.yaml", "graph.yaml", "facts.yaml")} == {name}


@pytest.mark.parametrize(("name", "published"), PUBLISHED_SIZES.items())
def test_a_graph_adds_up_to_the_published_size(name: str, published: tuple[int, float, float]) -> None:
    graph = read(MODELS / name / "graph.yaml")
    kinds = {kind["id"]: kind["nodes"] for kind in graph["layer_kinds"]}
    nodes = [node for kind in layers_of(graph) for node in kinds[kind]] + graph["head"]
    matrices = 2 if name in TWO_MATRIX_EXPERTS else 3
    held = sum(node_parameters(node, matrices)[0] for node in nodes)
    active = sum(node_parameters(node, matrices)[1] for node in nodes)
    held += int(graph["global"]["vocab_size"]) * int(graph["global"]["hidden_size"])
    assert (len(layers_of(graph)), round(held / 1e9, 1), round(active / 1e9, 1)) == published


@pytest.mark.parametrize("name", PUBLISHED_SIZES)
def test_edges_form_the_chain_of_the_nodes(name: str) -> None:
    for kind in read(MODELS / name / "graph.yaml")["layer_kinds"]:
        assert kind["edges"] == [[str(i), str(i + 1)] for i in range(len(kind["nodes"]) - 1)]


PLAIN = [
    name
    for name in PUBLISHED_SIZES
    if read(MODELS / name / "facts.yaml")["attention"].split(" ")[0] not in ("sparse", "compressed")
    and "recurrent_mixer" not in read(MODELS / name / "facts.yaml")
    and "index_heads" not in read(MODELS / name / "facts.yaml")
]
"""Models of attention and MLPs alone; what is beyond that is held to its config in tests/derive."""


@pytest.mark.parametrize("name", PLAIN)
def test_projection_widths_follow_from_the_facts(name: str) -> None:
    """The deriver's rules: heads, head dims, ranks and expert counts fix the width of every matmul."""
    graph, raw = read(MODELS / name / "graph.yaml"), read(MODELS / name / "facts.yaml")
    facts = {key: int(value) for key, value in raw.items() if str(value).isdigit() and key != "revision"}
    hidden, heads = facts["hidden_size"], facts["attention_heads"]
    if raw["attention"] == "latent":
        query, latent, rope = facts.get("q_lora_rank", 0), facts["kv_lora_rank"], facts["qk_rope_head_dim"]
        down, up = ("qkv_a_proj", "q_b_proj") if query else ("kv_a_proj", "q_proj")
        widths = {
            down: (query + latent + rope, hidden),
            up: (heads * (facts["qk_nope_head_dim"] + rope), query or hidden),
            "kv_b_proj": (heads * (facts["qk_nope_head_dim"] + facts["v_head_dim"]), latent),
            "o_proj": (hidden, heads * facts["v_head_dim"]),
        }
        cached = (1, latent + rope)
    else:
        dim, kv_heads = facts["head_dim"], facts["kv_heads"]
        widths = {"qkv_proj": ((heads + 2 * kv_heads) * dim, hidden), "o_proj": (hidden, heads * dim)}
        cached = (kv_heads, dim)
    if "mlp_width" in facts:
        widths |= {"mlp_gate_up": (2 * facts["mlp_width"], hidden), "mlp_down": (hidden, facts["mlp_width"])}
    if "expert_width" in facts:
        widths["experts"] = (facts["expert_width"], hidden)

    nodes = [node for kind in graph["layer_kinds"] for node in kind["nodes"]]
    assert {n["role"]: (int(n["n"]), int(n["k"])) for n in nodes if n["op"] in ("GEMM", "GroupedGEMM")} == widths
    for node in nodes:
        if node["op"] == "Attention":
            assert (int(node["n_q"]), int(node["n_kv"]), int(node["d_h"])) == (heads, *cached)
        if node["op"] == "GroupedGEMM":
            assert (int(node["experts"]), int(node["top_k"])) == (facts["routed_experts"], facts["experts_per_token"])
    assert len(layers_of(graph)) == facts["layers"]
    assert graph["global"] == {key: raw[key] for key in graph["global"]}
    assert (graph["head"][-1]["n"], graph["head"][-1]["k"]) == (raw["vocab_size"], raw["hidden_size"])


def test_deepseek_latent_norms_state_what_they_move() -> None:
    """One read and one write of 1536 and 512 values of 2 bytes."""
    for kind in read(MODELS / "deepseek-v3" / "graph.yaml")["layer_kinds"]:
        stated = {node["role"]: node["bytes_per_token"] for node in kind["nodes"] if "bytes_per_token" in node}
        assert stated == {"q_a_layernorm": str(2 * 1536 * 2), "kv_a_layernorm": str(2 * 512 * 2)}


def test_gpt_oss_alternates_window_and_full_attention_with_narrow_experts() -> None:
    graph = read(MODELS / "gpt-oss-120b" / "graph.yaml")
    assert layers_of(graph)[:4] == ["swa_moe", "full_moe", "swa_moe", "full_moe"]
    for kind in graph["layer_kinds"]:
        attention = next(node for node in kind["nodes"] if node["op"] == "Attention")
        expected = ("swa", "128") if kind["id"] == "swa_moe" else ("gqa", None)
        assert (attention["kind"], attention.get("window")) == expected
        assert [node.get("weight_dtype") for node in kind["nodes"] if node["op"] == "GroupedGEMM"] == ["mxfp4"]


DRAFTS = {
    "deepseek-v3": ("deepseek_mtp", "1", ["attn_moe"]),
    "deepseek-v4-pro": ("deepseek_mtp", "1", ["mtp_moe"]),
    "glm-5": ("deepseek_mtp", "1", ["attn_moe"]),
    "glm-5.2": ("deepseek_mtp", "1", ["mtp_moe"]),
    "glm-5.2-fp8": ("deepseek_mtp", "1", ["mtp_moe"]),
    "glm-5.3": ("deepseek_mtp", "1", ["mtp_moe"]),
    "glm-5.3-flash": ("glm5_next_mtp", "1", ["mtp_moe"]),
    "minimax-m3": ("minimax_m3_mtp", "7", ["sparse_attn_moe"]),
    "nemotron-3-ultra-550b-a55b-bf16": ("nemotron_h_mtp", "1", ["attention", "moe"]),
    "nemotron-3-ultra-550b-a55b-nvfp4": ("nemotron_h_mtp", "1", ["attention", "moe"]),
    "nemotron-3.5-lightning-30b-a3b-bf16": ("nemotron_h_mtp", "1", ["attention", "moe"]),
    "nemotron-3.5-lightning-30b-a3b-nvfp4": ("nemotron_h_mtp", "1", ["attention", "moe"]),
    "qwen3.5-397b-a17b": ("qwen3_5_mtp", "1", ["attn_moe"]),
}
"""Method, drafts and layers of the draft modules, inference-sim/blis-catalog 6d986729."""


@pytest.mark.parametrize("name", PUBLISHED_SIZES)
def test_a_model_brings_the_draft_module_of_its_checkpoint(name: str) -> None:
    stated = read(MODELS / name / "graph.yaml").get("speculator")
    expected = DRAFTS.get(name)
    assert stated == (
        expected
        and {"method": expected[0], "num_spec_tokens": expected[1], "stack": {"pattern": expected[2], "repeat": "1"}}
    )


# -------------------------------------------------------------------------------------------------- scenarios


def bundle(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    scenario, deployment = yaml.load_all((SCENARIOS / f"{name}.yaml").read_text(encoding="utf-8"), LOADER)
    return scenario, deployment


def test_the_named_scenarios_are_all_there() -> None:
    assert {path.stem for path in SCENARIOS.iterdir()} == NAMED_SCENARIOS


def test_every_model_has_a_scenario() -> None:
    assert {bundle(name)[0]["model"] for name in NAMED_SCENARIOS} == set(PUBLISHED_SIZES)


@pytest.mark.parametrize("name", sorted(NAMED_SCENARIOS))
def test_a_scenario_is_two_documents_named_like_its_file(name: str) -> None:
    scenario, deployment = bundle(name)
    assert (scenario["kind"], deployment["kind"]) == ("Scenario", "Deployment")
    assert (scenario["name"], deployment["name"]) == (name, name)
    assert 'engine_version: "0.29.0"' in (SCENARIOS / f"{name}.yaml").read_text(encoding="utf-8")
    assert scenario["coefficients"] == [
        f"cost-model-{part}"
        for part in ("primitives", "collectives", "host-overheads", "attention", "recurrent", "memory")
    ]


@pytest.mark.parametrize("name", sorted(NAMED_SCENARIOS))
def test_a_scenario_names_bundled_parts_and_fits_its_cluster(name: str) -> None:
    scenario, deployment = bundle(name)
    cluster = scenario["cluster"]
    assert scenario["model"] in PUBLISHED_SIZES
    assert cluster["hardware"] in CHIPS
    nodes, gpus = int(cluster["nodes"]), int(cluster["gpus_per_node"])
    assert ("fabric" in cluster) == (nodes > 1)
    assert sum(int(pool["nodes"]) for pool in deployment["pools"]) == nodes
    for pool in deployment["pools"]:
        parallel = {key: int(value) for key, value in pool["parallel"].items() if value.isdigit()}
        assert parallel["tp"] * parallel["pp"] * parallel["dp"] <= int(pool["nodes"]) * gpus


def test_the_priced_example_keeps_its_published_settings() -> None:
    """inference-sim/blis-latency-kernel 414799a1, aisimulate/deepseek-v3-h200-fp8-sglang-tp8."""
    scenario, deployment = bundle("deepseek-v3-h200-fp8-tp8")
    assert (scenario["model"], scenario["cluster"]) == (
        "deepseek-v3",
        {"hardware": "h200", "nodes": "1", "gpus_per_node": "8"},
    )
    (pool,) = deployment["pools"]
    assert pool["parallel"] == {"tp": "8", "pp": "1", "dp": "1", "enable_expert_parallel": "false"}
    assert pool["engine"] == {
        "quantization": "fp8", "cache_dtype": "fp8", "block_size": "16", "max_num_batched_tokens": "8192",
        "max_num_seqs": "256", "max_model_len": "32768", "cudagraph_mode": "PIECEWISE", "gpu_memory_utilization": "0.9",
    }  # fmt: skip


def test_the_disaggregated_scenario_has_a_prefill_and_a_decode_pool() -> None:
    """inference-sim/blis-latency-kernel 414799a1, the deployment inside openpool_test.go."""
    _, deployment = bundle("minimax-m2.5-h200-disagg")
    layout = [(p["role"], p["parallel"]["tp"], p["parallel"]["dp"], p["engine"]["max_num_batched_tokens"])
              for p in deployment["pools"]]  # fmt: skip
    assert layout == [("prefill", "8", "1", "8192"), ("decode", "4", "2", "2048")]
    assert deployment["pd_transfer"] == {"connector": "NixlConnector"}
