"""What prompts owe to generation: an account in seconds, kept while both want the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ShareAccount:
    """With a share s, prompt work of p seconds puts p*s/(1-s) on the account, and each batch without prompt tokens pays back what
    it took: so generation keeps s of the time for which the two contend. At most one decode round is paid in advance.
    """

    debt: float = 0.0
    _share: float | None = None  # None: nothing contends, or no share is kept
    _planned_at: float = 0.0

    @property
    def is_kept(self) -> bool:
        return self._share is not None

    def prompts_wait(self, share: float | None, *, contended: bool, now: float) -> bool:
        """Whether the batch planned now goes without prompt tokens. Contention begins with such a batch, and its end clears."""
        if share is None or not contended:
            self._share, self.debt = None, 0.0
            return False
        begins = self._share is None
        self._share, self._planned_at = share, now
        return begins or self.debt > 0.0

    def book(self, now: float, *, with_prompts: bool) -> None:
        """The batch planned last has ended, well or not."""
        assert self._share is not None
        took = max(0.0, now - self._planned_at)
        if with_prompts:
            self.debt += took * self._share / (1.0 - self._share)
        else:
            self.debt = max(self.debt - took, -took)
