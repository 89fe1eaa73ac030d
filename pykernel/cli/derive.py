"""`pykernel derive`: a model graph from a HuggingFace config.json, as a file that a catalog takes."""

from __future__ import annotations

import argparse
from pathlib import Path

import pykernel
from pykernel.cli import UsageError, text
from pykernel.documents import graph

HELP = """\
The config's quantization record is honoured, or a hf_quant_config.json beside it; --quantization takes the whole
model to be stored in one format instead (bf16, fp8, nvfp4, ...). Nothing is guessed: an unknown architecture, and a
field that is missing or at odds with another, is refused by name.

In a catalog, the graph is the file models/NAME/graph.yaml.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a config.json, or the folder that holds one")
    parser.add_argument("--name", metavar="NAME", default="", help="name of the model (default: that of the folder)")
    parser.add_argument("--quantization", metavar="FORMAT", default="", help="weight format of the whole model")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write (default: standard output)")


def run(options: argparse.Namespace) -> int:
    derived = pykernel.derive(options.config, name=options.name, quantization=options.quantization)
    written = graph.dump(derived)
    if options.output is None:
        print(written, end="")
        return 0
    try:
        Path(options.output).write_text(written, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{options.output} cannot be written: {error.strerror}") from None
    layers = derived.stack.layers()
    counted = f"{text.plural(len(layers), 'layer')} of {text.plural(len(set(layers)), 'kind')}"
    print(f"{options.output}: {derived.name}, {counted}")
    return 0
