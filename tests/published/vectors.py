"""Steps priced elsewhere: published figures, and vectors of a second implementation of the same laws.

Apart from the tests, because the kernel answers to them as well as the oracle. Published: the documentation of
inference-sim/blis-latency-kernel. Times are in nanoseconds unless a table says otherwise; all batches have a decode
threshold of 8.
"""

from __future__ import annotations

from dataclasses import replace

from pykernel_python_reference.oracle import NEWEST, REFERENCE, Request, Settings

Vector = tuple[int, ...]

DEEPSEEK = "deepseek-v3-h200-fp8-tp8"
NEMOTRON = "nemotron-3-ultra-h100-tp8-mtp"
EP16, DISAGG, GPT_OSS = "minimax-m2.5-h200-ep16", "minimax-m2.5-h200-disagg", "gpt-oss-120b-h100-fp4-tp2"
GLM, V4 = "glm-5-h200-tp8", "deepseek-v4-pro-b200-fp4-tp8"
QWEN = "qwen3.5-397b-a17b-b300-fp4-tp4"

DECODES = [Request(1, 4095)] * 32
PROMPT = [Request(2048)]
SMALL_MIX = [*DECODES, Request(480)]
DRAFTED = [Request(2, 4094)] * 32
UNDRAFTED = replace(NEWEST, speculator=False)

# Scenario, pool, settings, batch -> sm, hbm, nvlink, nic, host, Overlap, NoOverlap.
ROWS: list[tuple[str, int, Settings, list[Request], Vector]] = [
    (EP16, 0, REFERENCE, DECODES, (257819, 4927636, 817895, 674383, 3225000, 8327205, 9902733)),
    (EP16, 0, NEWEST, DECODES, (257819, 4947643, 914417, 674383, 3225000, 8403721, 10019262)),
    (EP16, 0, NEWEST, PROMPT, (5496876, 3887385, 15563759, 8865859, 3218000, 25067355, 37031879)),
    (DISAGG, 1, REFERENCE, DECODES, (1563048, 9018273, 1346912, 0, 2791000, 13205819, 14719233)),
    (DISAGG, 1, NEWEST, DECODES, (1563048, 9058286, 1428811, 0, 2791000, 13247705, 14841145)),
    (GPT_OSS, 0, REFERENCE, DECODES, (1104130, 9390283, 404639, 0, 1647800, 11966738, 12546852)),
    (GPT_OSS, 0, NEWEST, DECODES, (1104130, 8208828, 477072, 0, 1647800, 10765695, 11437830)),
    (GPT_OSS, 0, NEWEST, PROMPT, (15256780, 11318210, 6943722, 0, 1640800, 31641938, 35159512)),
    (GLM, 0, REFERENCE, DECODES, (4954576, 19621131, 1323169, 0, 5828600, 29954718, 31727476)),
    (GLM, 0, NEWEST, DECODES, (4954576, 19652107, 1400219, 0, 5828600, 30000792, 31835502)),
    (V4, 0, REFERENCE, DECODES, (1745410, 7632516, 1253603, 0, 4253599, 13614758, 14885128)),
    (V4, 0, NEWEST, DECODES, (1745410, 7614372, 1299613, 0, 4253599, 13604941, 14912994)),
    (QWEN, 0, REFERENCE, DECODES, (2746834, 4034957, 972839, 0, 2593399, 9295096, 10348029)),
    (QWEN, 0, NEWEST, DECODES, (2746834, 4096477, 1028899, 0, 2593399, 9356615, 10465609)),
    (NEMOTRON, 0, REFERENCE, DRAFTED, (9719911, 43466074, 1665366, 0, 3611000, 56820130, 58462351)),
    (NEMOTRON, 0, UNDRAFTED, DRAFTED, (17561333, 18565445, 1790814, 0, 3611000, 38577851, 41528592)),
    (NEMOTRON, 0, NEWEST, DRAFTED, (17967843, 19075009, 1889447, 0, 3674999, 39479977, 42607298)),
]

# Batch -> sm, hbm, nvlink, nic, host, Overlap, NoOverlap, with the older graph and the reference settings.
OLDER: dict[str, tuple[list[Request], Vector]] = {
    "32 decodes": (DECODES, (4464780, 16506553, 1111480, 0, 3544399, 24115452, 25627212)),
    "prefill 512": ([Request(512)], (20990789, 21926242, 9164393, 0, 3544399, 51613686, 55625823)),
    "prefill 1024": ([Request(1024)], (38385415, 22042843, 17754167, 0, 3537399, 74629785, 81719824)),
    "chunk": ([Request(1024, 8192)], (74335432, 22042843, 17754167, 0, 3537399, 99158924, 117669841)),
    "mixed": (SMALL_MIX, (20916009, 24322606, 9164393, 0, 3544399, 51613686, 57947407)),
    "two rows": ([Request(2, 4094)] * 64, (7420773, 25442263, 2722063, 0, 3544399, 35750307, 39129498)),
}
# With the newest settings and the graph as it is.
NEWER: dict[str, tuple[list[Request], Vector]] = {
    "32 decodes": (DECODES, (4464780, 16533595, 1177497, 0, 3544399, 24148180, 25720271)),
    "1 decode": ([Request(1, 4095)], (3510241, 2091689, 603438, 0, 3544399, 8831626, 9749767)),
    "256 decodes": ([Request(1, 4095)] * 256, (11362097, 35273251, 5325539, 0, 3544399, 49556802, 55505286)),
    "prefill 2048": (PROMPT, (75884441, 22106323, 34945755, 0, 3537399, 120392593, 136473918)),
    "mixed": (SMALL_MIX, (20839822, 24302800, 9232151, 0, 3544399, 51582035, 57919172)),
}

# Decodes at context 4096 -> sm, hbm, nvlink, Overlap, NoOverlap as read off a published plot (ms, +-0.03).
SWEEP = {
    1: (3.52, 2.07, 0.60, 8.81, 9.71),
    2: (3.55, 2.75, 0.60, 9.52, 10.45),
    4: (3.60, 4.09, 0.65, 10.91, 11.86),
    8: (3.74, 6.52, 0.71, 13.45, 14.48),
    16: (3.98, 10.61, 0.85, 17.78, 18.98),
    32: (4.47, 16.50, 1.12, 24.11, 25.64),
    64: (5.45, 22.99, 1.64, 31.50, 33.63),
    128: (7.42, 28.58, 2.73, 38.89, 42.27),
    256: (11.37, 35.24, 4.88, 49.17, 55.01),
}
# The same, recomputed elsewhere from the laws (ms).
RECOMPUTED = {
    1: (3.510, 2.062, 0.591, 8.802, 9.708),
    2: (3.541, 2.755, 0.608, 9.523, 10.449),
    4: (3.603, 4.083, 0.642, 10.907, 11.872),
    8: (3.726, 6.517, 0.709, 13.453, 14.496),
    16: (3.972, 10.615, 0.843, 17.776, 18.975),
    32: (4.465, 16.507, 1.111, 24.115, 25.627),
    64: (5.450, 23.003, 1.648, 31.509, 33.646),
    128: (7.421, 28.588, 2.722, 38.896, 42.275),
    256: (11.362, 35.268, 4.870, 49.184, 55.044),
}

# Sequences, budget, rows of a uniform decode, largest graph -> entries, largest entry (vllm v0.31.0).
CAPTURES = {
    (1024, 8192, 1, 512): (51, 512),
    (1024, 16384, 1, 1024): (83, 1024),
    (64, 8192, 1, 512): (19, 128),
    (18, 8192, 1, 512): (8, 32),
    (18, 8192, 2, 512): (13, 72),
    (64, 8192, 3, 512): (46, 384),
    (1024, 256, 1, 512): (35, 256),
}
