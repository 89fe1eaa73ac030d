"""The oracle held to figures that were published or computed elsewhere, so that it may judge the kernel.

A wrong oracle is worse than none: every vector here was worked out without it. Times are in nanoseconds and may
differ by 2, since others add up in doubles what the oracle adds up exactly.
"""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.oracle import NEWEST, REFERENCE, Batch, Oracle, Price, Request, Settings, plan, random_batch
from tests.oracle.batch import split_prefill, walk, windowed_pairs4, zigzag
from tests.oracle.coefficients import Coefficients, Triple, choose_width, decode_kinds_pair
from tests.oracle.fixtures import bundled_scenarios, kept_scenarios, scenario, without_latent_norm_bytes
