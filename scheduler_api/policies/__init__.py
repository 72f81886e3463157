"""Policies of a server: asked, switched with the version that was seen, read back, written down, watched.

    policies.switch(server, {"phase": "barrier"}, actor=user, actor_name="mira", reason="...", expected_version=41, ttl_s=1800)

asking    what the server says           switching  the switch and its rows     values    what a policy may hold (pure)
presets   kept policies                  windows    policies by the clock       cautions  what to know before a switch (pure)
guards    conditions of a guard rail (pure); guarding looks at them     drift     who else changed it (pure); drifting notes it
taking_back  a change that is still in force, undone
"""

from __future__ import annotations

from scheduler_api.policies.asking import dry_run, read_policy, target_of
from scheduler_api.policies.switching import LONGEST_REASON, switch
from scheduler_api.policies.taking_back import take_back, undone

__all__ = ["LONGEST_REASON", "dry_run", "read_policy", "switch", "take_back", "target_of", "undone"]
