"""Rate limits: no more in any minute than allowed, and a halt while an endpoint asks for one."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

WINDOW_S = 60.0


@dataclass
class Entry:
    """Something that was let through: when, and how much of it; `amount` may be corrected."""

    at: float
    amount: int


class Pace:
    """Lets through at most so much in any 60 seconds, in the order of asking.

    Args:
        per_minute: the limit; 0 for none. One amount above it alone waits for an empty minute.
        clock, sleep: seconds that only rise, and a wait of so many seconds.
    """

    def __init__(
        self,
        per_minute: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.per_minute, self.clock, self.sleep = per_minute, clock, sleep
        self._entries: deque[Entry] = deque()
        self._turn = asyncio.Lock()

    async def wait(self, amount: int = 1) -> Entry:
        """Wait for room, then take it."""
        async with self._turn:
            while (delay := self._delay(amount)) > 0:
                await self.sleep(delay)
            entry = Entry(self.clock(), amount)
            if self.per_minute:
                self._entries.append(entry)
            return entry

    def _delay(self, amount: int) -> float:
        """Seconds until enough of what was let through is a minute old."""
        now = self.clock()
        while self._entries and self._entries[0].at <= now - WINDOW_S:
            self._entries.popleft()
        over = sum(entry.amount for entry in self._entries) + amount - self.per_minute
        if not self.per_minute or over <= 0:
            return 0.0
        for entry in self._entries:
            over -= entry.amount
            if over <= 0:
                return max(entry.at + WINDOW_S - now, 1e-3)
        return max(self._entries[-1].at + WINDOW_S - now, 1e-3) if self._entries else 0.0


class Halt:
    """Holds every request back until a moment that an endpoint named."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.clock, self.sleep = clock, sleep
        self._until = 0.0

    def hold(self, seconds: float) -> None:
        self._until = max(self._until, self.clock() + seconds)

    @property
    def holds(self) -> bool:
        return self._until > self.clock()

    async def wait(self) -> None:
        while (left := self._until - self.clock()) > 0:
            await self.sleep(left)
