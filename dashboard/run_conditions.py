"""The conditions of a run as its page lists them: what it found and measured before its first block, and how it spoke."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.charts import words
from workers.models import Run


def conditions(run: Run) -> list[tuple[str, str]]:
    """What the run found and measured before its first block."""
    known = run.conditions or {}
    if not known:
        return []
    server, tokens, scenario = (known.get(key) or {} for key in ("server", "tokens", "scenario"))
    told = [
        ("Server", _joined(server, "name", "build")),
        ("Backend", str(server.get("backend") or "")),
        ("Model", str(server.get("model") or "")),
        ("Requests", _spoken(known.get("speaks"))),
        ("Slots", _slots(server)),
        ("KV", f"{known['kv_mode']}, from {known.get('kv_from') or 'the server'}" if known.get("kv_mode") else ""),
        ("n_batch, n_ubatch", _joined(server, "n_batch", "n_ubatch")),
        ("Threads", _joined(server, "n_threads")),
        ("Scenario", f"{scenario.get('name')}, version {scenario.get('version')}" if scenario else ""),
        ("Prompts", _prompts(tokens)),
        (
            "Short one sent after",
            ""
            if run.scenario_text
            else f"{run.share * 100:.3g} % of the cold one's time alone, and up to one batch, drawn for each pair",
        ),
        ("Load of a block", _planned(known)),
        ("Fitted", _fitted(known)),
        ("Alone", _alone(known)),
        ("Random", f"fresh prompts in each block, seed {run.seed}"),
        ("Clock", f"the server's was off by {words.span(abs(known['clock_offset_s']))}" if known.get("clock_offset_s") else ""),
        ("Percentiles", "linear interpolation; times by the client's clock"),
    ]
    return [(name, text) for name, text in told if text]


def _spoken(speaks: Mapping[str, Any] | None) -> str:
    """How an OpenAI-compatible server was spoken to."""
    if not speaks:
        return ""
    prompts = "token ids" if speaks["prompt"] == "ids" else f"plain words of about {speaks['tokens_a_word']:.2g} tokens each"
    refused = f"; it takes no {', '.join(speaks['refused'])}" if speaks["refused"] else ""
    return f"POST {speaks['path']}, prompts as {prompts}{refused}"


def _joined(part: Mapping[str, Any], *names: str) -> str:
    return ", ".join(str(part[name]) for name in names if part.get(name) not in (None, ""))


def _slots(server: Mapping[str, Any]) -> str:
    count, context = server.get("n_slots"), server.get("n_ctx_slot")
    return f"{count} × {words.whole(context)} tokens" if count and context else ""


def _prompts(tokens: Mapping[str, Any]) -> str:
    if not tokens:
        return ""
    cold, short, depth = (words.whole(tokens[key]) for key in ("cold", "short", "depth"))
    return f"{cold} cold; {short} short on {depth} warm; {tokens.get('n_predict', 1)} generated"


def _planned(known: Mapping[str, Any]) -> str:
    planned = known.get("planned")
    if not planned:
        return ""
    requests, prompt, output = (words.whole(planned[name]) for name in ("requests", "prompt_tokens", "output_tokens"))
    return f"{requests} requests, {prompt} prompt tokens, {output} to generate"


def _fitted(known: Mapping[str, Any]) -> str:
    """What the calibration found, and what sizes and times were multiplied by."""
    fitted = known.get("fitted")
    if not fitted:
        return ""
    speed, written_for = (words.whole(round(fitted[name])) for name in ("speed", "written_for"))
    factors = f"sizes × {fitted['scale']:.3g}, times × {fitted['times']:.3g}"
    return f"{speed} prompt tokens a second alone, written for {written_for}: {factors}"


def _alone(known: Mapping[str, Any]) -> str:
    if known.get("cold_alone_s") is None:
        return ""
    parts = [
        f"{name} {words.span(known[key])}"
        for name, key in (("cold", "cold_alone_s"), ("short", "short_alone_s"))
        if known.get(key)
    ]
    parts += [f"a full batch {words.span(known['batch_s'])}"] if known.get("batch_s") else []
    return ", ".join(parts)
