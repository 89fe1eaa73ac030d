"""What the package asks of the C core beside prices: its version, and how a status becomes an exception."""

from __future__ import annotations

from typing import Any

from pykernel._native import ffi, lib
from pykernel.errors import PykernelError


def error_struct() -> Any:
    """A fresh `pk_error` for one call."""
    error = ffi.new("pk_error *")
    error.struct_size = ffi.sizeof("pk_error")
    return error


def raise_for(status: int, error: Any, kind: type[PykernelError]) -> None:
    """Raise `kind` with the core's field and message unless `status` is PK_OK."""
    if status == lib.PK_OK:
        return
    field = ffi.string(error.field).decode()
    message = ffi.string(error.message).decode()
    raise kind(message if field in message else f"{field}: {message}")


def library_version() -> str:
    """The version of the C core, which is the package's own."""
    number = lib.pk_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
