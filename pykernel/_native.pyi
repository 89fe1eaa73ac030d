"""The compiled extension, built by cffi from _cdef.txt; its members are C, so they are not typed here."""

from typing import Any

ffi: Any
lib: Any
