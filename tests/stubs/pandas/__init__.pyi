"""What pyright is to know of pandas: nothing. Where pandas is installed, pyarrow's stubs take its frames for the only
thing beside lists that columns are made of, and no numpy arrays."""

from typing import Any, TypeAlias

DataFrame: TypeAlias = Any
Series: TypeAlias = Any

def __getattr__(name: str) -> Any: ...
