"""What a client closes at the end of a `with` block."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from coordlib.client.kit.forked import made_here


class Closing(ABC):
    """A client that is closed when its `with` block ends, however that ends."""

    def __new__(cls, *_args: Any, **_named: Any) -> Self:
        made = super().__new__(cls)
        made_here(made)
        return made

    @abstractmethod
    def close(self) -> None:
        """End, and give back what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
