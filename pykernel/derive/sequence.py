"""A sequence of layers in few words: prologue, a repeated pattern, and epilogue."""

from __future__ import annotations

from pykernel.documents.graph import Stack


def compressed(layers: list[str]) -> Stack:
    """The split with the fewest ids written out; among equals the shortest pattern, then the earliest.

    A sequence that no repetition shortens is a prologue alone. Linear in the depth for each length of a pattern.
    """
    count = len(layers)
    if count > 1 and len(set(layers)) == 1:
        return Stack(pattern=[layers[0]], repeat=count)
    best = (count, 0, 0, 0)  # ids written, length, start, repeat
    for length in range(1, count // 2 + 1):
        start = 0
        while start + 2 * length <= count:
            end = start
            while end + length < count and layers[end] == layers[end + length]:
                end += 1
            repeat = (end - start) // length + 1
            if repeat >= 2:
                written = count - length * (repeat - 1)
                if written < best[0]:
                    best = (written, length, start, repeat)
            start = end + 1
    _, length, start, repeat = best
    if not repeat:
        return Stack(prologue=list(layers))
    after = start + length * repeat
    return Stack(list(layers[:start]), list(layers[start : start + length]), repeat, list(layers[after:]))
