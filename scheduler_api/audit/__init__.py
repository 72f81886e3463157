"""The audit trail. `audit.record(...)` is all that a write needs; scheduler_api/audit/service.py says what it takes.

    audit.record("server.registered", "atlas, llama-server at http://10.0.0.7:8080", server=server, after={"kind": server.kind})

Who acts and from where is known from the request that is being answered. Call it inside the transaction of the write.
"""

from __future__ import annotations

from scheduler_api.audit.origin import Origin, acting, this_process
from scheduler_api.audit.service import record

__all__ = ["Origin", "acting", "record", "this_process"]
