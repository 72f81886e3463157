"""What can be wrong with a pair of model files."""

from __future__ import annotations


class DraftError(Exception):
    """One sentence for the operator, with the file, the key and the value that are wrong.

    DraftError
    ├── HeaderError   a file cannot be read, or its header is not that of a GGUF file
    └── DraftInvalid  both headers were read, and the draft's cannot be used with this target
    """


class HeaderError(DraftError):
    pass


class DraftInvalid(DraftError):
    pass
