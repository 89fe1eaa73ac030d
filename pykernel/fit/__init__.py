"""Fitting the measured laws to tables of measured kernels (extra `fit`: numpy, scipy, pyarrow).

`tables` finds and reads them, `families` turns their columns into those of a law, `forms` has the laws, `robust` fits
one, `run` fits all, `sets` writes coefficient sets, `report` and `plots` show how well they hold. Nothing else in the
package imports any of this.
"""
