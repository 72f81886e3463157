"""Who may watch what: leases in Valkey, and the fence that lets their holder's writes through and no other's (docs/adr/0031).

A lease is a key that expires, `slotboard:lease:<what>`, whose value names its holder and carries a token that grows with every
lease there ever was. Everything the holder writes to Valkey goes through a script that compares that value first: a process that
was stopped, lost its lease and goes on does not get one write past a newer holder's.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis
import redis.asyncio

#: How long a lease lasts that nobody renews: a holder that dies gives up what it watched after this time.
LEASE_S = 6.0
OBSERVERS_KEY = "slotboard:observers"
_TOKENS_KEY = "slotboard:lease-tokens"
ALERTS = "alerts"

type Command = tuple[str | bytes | int | float, ...]

#: A token is the server's time in microseconds, so it grows even over a Valkey that lost its memory.
_TAKE = """
local now = redis.call('TIME')
local token = math.max(now[1] * 1000000 + now[2], (tonumber(redis.call('GET', KEYS[2])) or 0) + 1)
local text = string.format('%.0f', token)
if not redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. text, 'NX', 'PX', ARGV[2]) then return false end
redis.call('SET', KEYS[2], text)
return text
"""
#: For each lease 1 (renewed), 0 (nobody has it) or -1 (another has it); and the observers there are.
_RENEW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[3] == '1' then redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1]) else redis.call('ZREM', KEYS[1], ARGV[1]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local kept = {}
for i = 2, #KEYS do
  local found = redis.call('GET', KEYS[i])
  if not found then kept[i - 1] = 0
  elseif found == ARGV[i + 2] then redis.call('PEXPIRE', KEYS[i], ARGV[2]); kept[i - 1] = 1
  else kept[i - 1] = -1 end
end
return {kept, redis.call('ZRANGE', KEYS[1], 0, -1)}
"""
#: ARGV: the lease's value, then for each command how many words it has, and these.
_FENCED = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local i = 2
while i <= #ARGV do
  local n = tonumber(ARGV[i])
  redis.call(unpack(ARGV, i + 1, i + n))
  i = i + n + 1
end
return 1
"""
_RELEASE = """
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[i] then redis.call('DEL', KEYS[i]) end
end
"""


def lease_key(what: str) -> str:
    return f"slotboard:lease:{what}"


def of_server(server_id: int) -> str:
    return f"server:{server_id}"


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """One observer. `born` orders them by age; `name` is "host:pid", for people; `mark` tells two of one host and pid apart."""

    born: int
    name: str
    mark: str

    @property
    def text(self) -> str:
        return f"{self.born} {self.name} {self.mark}"

    @classmethod
    def of(cls, text: str) -> Owner:
        born, name, mark = text.split(" ")
        return cls(int(born), name, mark)


def this_process() -> Owner:
    host = socket.gethostname().replace(" ", "-")[:60] or "unknown"
    return Owner(time.time_ns() // 1000, f"{host}:{os.getpid()}", secrets.token_hex(4))


@dataclass(frozen=True, slots=True)
class Lease:
    what: str
    owner: Owner
    token: int

    @property
    def value(self) -> str:
        return f"{self.owner.text} {self.token}"


def clock() -> float:
    """Seconds that go on while the process is stopped, and where the system tells, while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(slots=True)
class _Held:
    lease: Lease
    until: float  # by `clock`


@dataclass(slots=True)
class Leases:
    """What one observer holds. Methods that are coroutines raise redis.RedisError or OSError while Valkey is away."""

    client: redis.asyncio.Redis
    owner: Owner = field(default_factory=this_process)
    lease_s: float = LEASE_S
    observers: tuple[Owner, ...] = ()  # of the last round, this one among them once it is ready
    _held: dict[str, _Held] = field(default_factory=dict)

    def lease(self, what: str) -> Lease | None:
        """The lease, while it has certainly not run out."""
        held = self._held.get(what)
        return held.lease if held is not None and clock() < held.until else None

    def holds(self, what: str) -> bool:
        """Whether it is not known to be lost; it may have run out."""
        return what in self._held

    def held(self) -> list[Lease]:
        return [each.lease for each in self._held.values()]

    def least_left(self) -> float:
        """Seconds until the first of the leases runs out; infinite without any."""
        return min((each.until for each in self._held.values()), default=float("inf")) - clock()

    async def take(self, what: str) -> Lease | None:
        """A lease that nobody has; `keep` makes it one's own."""
        words = [self.owner.text, self._ms()]
        token: Any = await self._run(_TAKE, [lease_key(what), _TOKENS_KEY], words)
        return None if token is None else Lease(what, self.owner, int(token))

    def keep(self, lease: Lease, since: float) -> None:
        """`since`: by `clock`, before it was asked for."""
        self._held[lease.what] = _Held(lease, since + self.lease_s)

    def prolong(self, tokens: Iterable[int], since: float) -> None:
        wanted = set(tokens)
        for held in self._held.values():
            if held.lease.token in wanted:
                held.until = since + self.lease_s

    async def renew(self, *, ready: bool) -> list[Lease]:
        """Renews all in one request, and forgets those that another has. Those that Valkey has forgotten are returned.

        `ready`: whether this observer is to have its share of the servers.
        """
        began, asked = clock(), self.held()
        keys = [OBSERVERS_KEY, *(lease_key(lease.what) for lease in asked)]
        words = [self.owner.text, self._ms(), int(ready), *(lease.value for lease in asked)]
        kept, observers = await self._run(_RENEW, keys, words)
        self.observers = tuple(sorted(Owner.of(text.decode()) for text in observers))
        self.prolong((lease.token for lease, state in zip(asked, kept, strict=True) if state == 1), began)
        for lease, state in zip(asked, kept, strict=True):
            if state < 0:
                self.forget(lease)
        return [lease for lease, state in zip(asked, kept, strict=True) if state == 0]

    def forget(self, lease: Lease) -> None:
        held = self._held.get(lease.what)
        if held is not None and held.lease == lease:
            del self._held[lease.what]

    async def write(self, what: str, commands: Sequence[Command]) -> bool:
        """Carries all of them out at once, or none: False when the lease is not held."""
        lease = self.lease(what)
        return lease is not None and await self.write_under(lease, commands)

    async def write_under(self, lease: Lease, commands: Sequence[Command]) -> bool:
        words: list[Any] = [lease.value]
        for command in commands:
            words += [len(command), *command]
        return bool(await self._run(_FENCED, [lease_key(lease.what)], words))

    async def release(self, leases: Sequence[Lease]) -> None:
        """Those that are still this observer's; they need not be kept."""
        for lease in leases:
            self.forget(lease)
        if leases:
            await self._run(_RELEASE, [lease_key(lease.what) for lease in leases], [lease.value for lease in leases])

    async def leave(self) -> None:
        await self.client.zrem(OBSERVERS_KEY, self.owner.text)

    def _ms(self) -> int:
        return round(self.lease_s * 1000)

    async def _run(self, script: str, keys: list[str], words: list[Any]) -> Any:
        return await self.client.register_script(script)(keys=keys, args=words)
