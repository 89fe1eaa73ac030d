"""The cost model `calibrated`: laws fitted to measured kernels, and the engine's own way wherever it is known.

`plan` lists the kernels of each kind of layer as one rank launches them, `operations` those of a whole deployment,
`laws` finds their coefficients, `flattening` writes both beside the plain spec of the core. The laws themselves are in
csrc/measured.c.
"""
