"""A kernel that went through an image, a file or a pickle answers as the one it was made of, to the last bit."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel import Batch, CoefficientOrigin, ImageError, Kernel, Placement, Request
from pykernel._native import ffi, lib
from pykernel.documents import Dbo, Eplb, Speculative

SCENARIOS = sorted(path.stem for path in (Path(pykernel.__file__).parent / "data" / "scenarios").glob("*.yaml"))
DEEPSEEK = "deepseek-v3-h200-fp8-tp8"


@cache
def kernel(scenario: str = DEEPSEEK, pool: int = 0) -> Kernel:
    made = pykernel.open_pool(scenario, pool)
    assert isinstance(made, Kernel)
    return made


def batches() -> list[Batch]:
    draw = random.Random(5)
    made = [Batch()]
    for _ in range(20):
        requests = [
            Request(draw.choice([1, 1, 2, 700]), draw.randrange(20_000), 500) for _ in range(draw.randrange(1, 40))
        ]
        made.append(Batch(requests, sm_budget=draw.choice([0, 60]), pad_tokens=draw.choice([0, 9])))
    return made


BATCHES = batches()


def observed(one: Kernel) -> dict[str, Any]:
    """Every answer of a kernel, on arguments that reach each of its laws."""
    source, targets = Placement(0, 0, "prefill"), [Placement(0, 0, "decode"), Placement(1, 0, "decode")]
    tokens = [-1, 0, 1, 17, 4_096, 131_072]
    capacity = one.kv_capacity()
    return {
        "block": bytes(ffi.buffer(ffi.cast("char *", one._handle), lib.pk_kernel_size(one._handle))),
        "steps": [one.step_time(batch) for batch in BATCHES],
        "terms": [one.explain(batch) for batch in BATCHES[:4]],
        "memory": (one.fixed_bytes(), one.pre_snapshot_bytes(), one.sequence_fixed_bytes()),
        "sequences": [(one.sequence_variable_bytes(n), one.sequence_bounded_bytes_at(n, 512)) for n in tokens],
        "capacity": (capacity.bytes, capacity.blocks, capacity.tokens, capacity.sequences(1_000)),
        "tiers": [one.tier_time_ns(tier, "to_tier", 1 << 26, 2) for tier in ("cpu_dram", "nvme_gen4", "none")],
        "demands": [one.pd_transfer_demand(n, source, target) for n in tokens for target in targets],
        "host": [one.admission_overhead_ns(n) for n in tokens]
        + [one.output_token_overhead_ns(), one.completion_overhead_ns()],
        "about": (one.provenance(), one.evidence(), one.resolved(), one.deployment()),
        "settings": (one.capture_tokens(), one.graph_modes(), one.decode_threshold()),
        "ranks": (one.decode_context_parallel_width(), one.prefill_context_parallel_width()),
    }


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_loaded_kernel_answers_as_the_one_saved(scenario: str) -> None:
    for pool in range(len(pykernel.open_inputs(scenario).deployment.pools)):
        one = kernel(scenario, pool)
        loaded = Kernel.from_bytes(one.to_bytes())
        assert loaded is not one
        assert observed(loaded) == observed(one)


def test_every_setting_of_a_deployment_survives() -> None:
    inputs = pykernel.open_inputs("minimax-m2.5-h200-tp8")
    engine = inputs.deployment.pools[0].engine
    engine.speculative, engine.dbo = Speculative("ngram", 2), Dbo(enable_dbo=False, dbo_decode_token_threshold=5)
    engine.eplb, engine.async_scheduling = Eplb(window_size=7), False
    engine.cudagraph_capture_sizes = [8, 64]
    engine.gpu_memory_utilization = 0.1 + 0.2
    made = pykernel.new(inputs)
    assert isinstance(made, Kernel)
    assert Kernel.from_bytes(made.to_bytes()).deployment() == inputs.deployment.pools[0] == made.deployment()


def test_a_file_holds_the_image(tmp_path: Path) -> None:
    path = tmp_path / "kernel.pkk"
    kernel().save(path)
    assert path.read_bytes() == kernel().to_bytes()
    assert observed(Kernel.load(path)) == observed(kernel())
    kernel("llama-3.1-8b-h100-tp1").save(path)
    assert Kernel.load(path).to_bytes() == kernel("llama-3.1-8b-h100-tp1").to_bytes()
    assert [left.name for left in tmp_path.iterdir()] == ["kernel.pkk"]


def test_pickles_and_copies_go_through_the_image() -> None:
    one = kernel()
    for other in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
        assert other is not one and observed(other) == observed(one)


class Own(Kernel):
    """A subclass, as a user may have one."""


def test_a_pickle_keeps_the_class() -> None:
    own = Own(pykernel.open_inputs(DEEPSEEK))
    again = pickle.loads(pickle.dumps(own))
    assert type(again) is Own and again.to_bytes() == own.to_bytes()


def test_a_kernel_travels_to_another_process(tmp_path: Path) -> None:
    (tmp_path / "kernel.pickle").write_bytes(pickle.dumps((kernel(), BATCHES)))
    program = (
        "import pickle; kernel, batches = pickle.load(open('kernel.pickle', 'rb'));"
        "print([kernel.step_time(batch).no_overlap_ns for batch in batches])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{[kernel().step_time(batch).no_overlap_ns for batch in BATCHES]}\n"


def test_c_reads_what_a_kernel_stands_for() -> None:
    one, handle = kernel(), kernel()._handle

    def text(key: str) -> str | None:
        found = lib.pk_text(handle, key.encode())
        return None if found == ffi.NULL else ffi.string(found).decode()

    assert (text("scenario"), text("model"), text("chip"), text("role")) == (
        DEEPSEEK,
        "deepseek-v3",
        "h200",
        "colocated",
    )
    assert text("parallel.tp") == "8"
    assert text("engine.cache_dtype") == "fp8"
    assert text("engine.block_size") is not None and text("assumed.block_size") is None
    assert lib.pk_setting(handle, b"max_num_seqs", -1) == one.deployment().engine.max_num_seqs
    assert lib.pk_setting(handle, b"max_cudagraph_capture_size", -1) == 512, "which is assumed"
    assert lib.pk_setting(handle, b"no_such_setting", -1) == -1
    evidence = lib.pk_evidence_of(handle)
    mine = one.evidence()
    assert (evidence.measured, evidence.total, evidence.assumed) == (mine.measured, mine.total, len(mine.assumed))


def test_text_that_c_cannot_hold_is_still_told() -> None:
    inputs = pykernel.open_inputs(DEEPSEEK)
    inputs.scenario.name = "a\0b \ud800 \N{SNOWMAN}"
    made = pykernel.new(inputs)
    assert isinstance(made, Kernel)
    assert ffi.string(lib.pk_text(made._handle, b"scenario")).decode() == "a\ufffdb ? \N{SNOWMAN}"
    assert all(isinstance(origin, CoefficientOrigin) for origin in made.provenance())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda image: b"", "image.magic"),
        (lambda image: b"kind: Scenario\n", "image.magic"),
        (lambda image: image[:-1], "image.size"),
        (lambda image: image + b"\0", "image.size"),
        (lambda image: image[:8] + b"\2" + image[9:], "image.format"),
        (lambda image: image[:999] + bytes([image[999] ^ 1]) + image[1000:], "image.checksum"),
    ],
)
def test_an_image_that_is_not_whole_is_refused(damage: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.pkk"
    path.write_bytes(damage(kernel().to_bytes()))
    with pytest.raises(ImageError, match=said):
        Kernel.from_bytes(path.read_bytes())
    with pytest.raises(ImageError, match=f"bad.pkk: .*{said}"):
        Kernel.load(path)


def test_files_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"missing\.pkk cannot be read"):
        Kernel.load(tmp_path / "missing.pkk")
    with pytest.raises(ImageError, match=r"kernel\.pkk cannot be written"):
        kernel().save(tmp_path / "no" / "kernel.pkk")


def test_an_image_without_text_is_for_c_alone() -> None:
    bare = ffi.new("pk_layer[]", [{"count": 1, "dense_flops_per_token": 1e9, "dense_bytes": 1e9}])
    memory = {"device_bytes": 1, "utilization": 1.0, "activation_tokens": 1, "activation_width": 1, "block": 1}
    spec = ffi.new(
        "pk_spec *",
        {
            "struct_size": ffi.sizeof("pk_spec"),
            **dict.fromkeys(("tensor_parallel", "prefill_context_parallel", "decode_context_parallel"), 1),
            "interleave": 1,
            "context_chunk": 1,
            "peak_flops": 1e15,
            "hbm_bytes_per_second": 1e12,
            "link_ratio": 1.0,
            "gemm": {"law": 1, "eps_max": 1.0},
            "host": {"uniform_width": 1, "decode_threshold": 1, "segments": 1, "layers": 1},
            "head": {"rows": 1},
            "memory": {**memory, "in_flight_tokens": 1},
            "layers": bare,
            "layer_count": 1,
        },
    )
    made = ffi.new("pk_kernel **")
    assert lib.pk_kernel_new(spec, made, ffi.NULL) == lib.PK_OK
    handle = ffi.gc(made[0], lib.pk_kernel_free)
    image = bytearray(lib.pk_image_size(handle))
    assert lib.pk_kernel_save(handle, ffi.from_buffer(image), len(image), ffi.NULL, ffi.NULL) == lib.PK_OK
    with pytest.raises(ImageError, match="'labels'"):
        Kernel.from_bytes(bytes(image))
