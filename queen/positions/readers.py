"""Who reads the games: the fast reader where it is installed, else the reference."""

from __future__ import annotations

from queen.errors import QueenError
from queen.positions.reading import Reader, ReaderName
from queen.positions.reference import ReferenceReader


def reader_named(name: ReaderName) -> Reader:
    """The reader of a name; `auto` takes the fast one where it is installed."""
    if name != "python-chess":
        try:
            from queen.positions.rust_reader import RustReader

            return RustReader()
        except ImportError as error:
            if name == "rust":
                raise QueenError(
                    "the fast reader is not installed",
                    where="extract.reader",
                    remedy="pip install rust-pgn-reader-python-binding, or set reader=auto",
                ) from error
    return ReferenceReader()
