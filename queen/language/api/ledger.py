"""What has been spent and what is reserved, so that a budget is never passed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from queen.errors import QueenError
from queen.language.api.messages import Bound
from queen.language.api.settings import Budget, Endpoint

SLACK = 1e-9


class BudgetError(QueenError):
    """The next request could pass the budget; nothing was sent."""


@dataclass
class Ledger:
    """The account of one run.

    Before a request is sent the most it can cost is reserved; its answer settles that to what it
    cost. An attempt that may have been billed unseen (no answer in time) counts in full, as lost.

    Attributes:
        budget: what may be spent.
        counts: requests sent, answers from the cache, retries, failures, tokens.
        usd: spent, of which `lost_usd` for attempts without a readable answer.
    """

    budget: Budget
    counts: Counter[str] = field(default_factory=Counter)
    usd: float = 0.0
    lost_usd: float = 0.0
    tokens: int = 0
    reserved_usd: float = 0.0
    reserved_tokens: int = 0
    open: int = 0

    def fits(self, endpoint: Endpoint, bound: Bound) -> bool:
        """Whether the most that an attempt can use is still within the budget."""
        usd = self.usd + self.reserved_usd + cost(endpoint, bound)
        tokens = self.tokens + self.reserved_tokens + sum(bound)
        return not (
            (self.budget.usd and usd > self.budget.usd + SLACK)
            or (self.budget.tokens and tokens > self.budget.tokens)
        )

    def reserve(self, endpoint: Endpoint, bound: Bound) -> None:
        self.reserved_usd += cost(endpoint, bound)
        self.reserved_tokens += sum(bound)
        self.open += 1

    def settle(self, endpoint: Endpoint, bound: Bound, used: Bound, *, lost: bool = False) -> None:
        """Put what was used in the place of what was reserved."""
        self.reserved_usd -= cost(endpoint, bound)
        self.reserved_tokens -= sum(bound)
        self.open -= 1
        self.usd += cost(endpoint, used)
        self.tokens += sum(used)
        if lost:
            self.lost_usd += cost(endpoint, used)
            self.counts["lost_tokens"] += sum(used)
        else:
            self.counts["prompt_tokens"] += used.prompt
            self.counts["answer_tokens"] += used.answer

    def stop(self, endpoint: Endpoint, bound: Bound, question: str) -> BudgetError:
        """The error that says why the next request is not sent."""
        of_money = f"${self.usd:.4f} of ${self.budget.usd:.2f}"
        of_tokens = f"{self.tokens} of {self.budget.tokens} tokens"
        return BudgetError(
            f"the budget ends here: {of_money if self.budget.usd else of_tokens} spent, and the "
            f"next request may use ${cost(endpoint, bound):.4f} and {sum(bound)} tokens",
            where=f"{endpoint.model}, {question}",
            remedy="what was answered is kept and costs nothing again; to go on, raise "
            "api.budget with `queen configure` and run again",
        )

    def told(self) -> str:
        """What was spent, for a line of progress."""
        return f"${self.usd:.4f}" if self.usd else f"{self.tokens} tokens"

    def figures(self) -> dict[str, float]:
        """For the run's record and MLflow; empty if nothing was asked."""
        if not self.counts:
            return {}
        money = {"usd": round(self.usd, 6), "lost_usd": round(self.lost_usd, 6)}
        counts = {name: float(n) for name, n in sorted(self.counts.items())}
        return {f"api.{name}": value for name, value in {**counts, **money}.items()}


def cost(endpoint: Endpoint, used: Bound) -> float:
    """In US dollars; 0 where no price is known."""
    price = endpoint.price
    return (used.prompt * (price.input or 0.0) + used.answer * (price.output or 0.0)) / 1e6


def require_price(endpoint: Endpoint, budget: Budget) -> None:
    """Raise QueenError where a budget in money is set and nobody has said what a token costs."""
    known = endpoint.price.input is not None and endpoint.price.output is not None
    if budget.usd and not known and not endpoint.local:
        raise QueenError(
            f"api.budget.usd is {budget.usd:g}, and the price of {endpoint.model!r} is not known",
            where=f"endpoint {endpoint.base_url}",
            remedy="give llm.price.input and llm.price.output beside its model (dollars for a "
            "million tokens), or set api.budget.usd=0 and api.budget.tokens",
        )
