"""The words about scenarios, runs and samples."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from slotboard_client.base import OK, REFUSED, listed, out, say, text_of
from slotboard_client.client import Client
from slotboard_client.printing import arm, as_json, facts, moment, plain, seconds, table
from slotboard_client.shapes import Run


def scenarios(client: Client, args: Namespace) -> int:
    head = ("NAME", "OWN", "STREAMS", "TITLE")

    def row(each: Any) -> tuple[Any, ...]:
        return each.name, "own" if each.own else "", ", ".join(each.streams), each.title

    return listed(args, client.scenarios(args.tag), head, row, "No scenario has this tag.")


def scenario_show(client: Client, args: Namespace) -> int:
    found = client.scenario(args.scenario)
    out(as_json(found.raw) if args.json else str(found.text).rstrip("\n"))
    return OK


def scenario_check(client: Client, args: Namespace) -> int:
    faults = client.check_scenario(text_of(args.file))
    if args.json:
        out(as_json(faults))
    else:
        out("\n".join(f"line {each['line']}: {plain(each['text'])}." for each in faults) or "Nothing is wrong with it.")
    return REFUSED if faults else OK


def runs(client: Client, args: Namespace) -> int:
    at = client.server(args.server).id if args.server else None
    found = client.runs(scenario=args.scenario, server=at, by=args.by, state=args.state, verdicts=args.verdicts)
    head = ("ID", "STATE", "SERVER", "SCENARIO", "STARTED BY", "CREATED", "VERDICT")

    def row(each: Run) -> tuple[Any, ...]:
        verdict = each.verdict or each.error or each.progress["text"]
        return each.id, each.state, each.server_name, each.scenario, each.by, moment(each.created_at), verdict

    return listed(args, found, head, row, "No runs.")


def run_start(client: Client, args: Namespace) -> int:
    name, text = args.scenario, None
    if Path(name).suffix in (".yaml", ".yml"):
        name, text = "", text_of(name)
    options = {
        each: getattr(args, each) for each in ("pairs", "scale", "share", "seed", "shards", "order", "floor", "not_before")
    }
    at = client.server(args.server).id
    started = client.start_run(at, name, text=text, arms=args.arms, wait=args.queue, **options)
    if not args.wait:
        out(as_json(started.raw) if args.json else f"Run {started.id} is {started.state}.")
        return OK
    say(f"run {started.id} is {started.state}")
    return _waited(client, started.id, args)


def run_wait(client: Client, args: Namespace) -> int:
    return _waited(client, args.run, args)


def _waited(client: Client, run: int, args: Namespace) -> int:
    """REFUSED for a run that did not finish, or is not over in time; it goes on then."""
    said = ""

    def told(found: Run) -> None:
        nonlocal said
        if found.progress["text"] and found.progress["text"] != said:
            said = found.progress["text"]
            say(said)

    try:
        ended = client.wait(run, limit_s=args.limit_s, told=told)
    except TimeoutError as late:
        say(str(late))
        return REFUSED
    return _shown_run(client, ended, args) or (OK if ended.state == "finished" else REFUSED)


def run_show(client: Client, args: Namespace) -> int:
    return _shown_run(client, client.run(args.run), args)


def _shown_run(client: Client, run: Run, args: Namespace) -> int:
    result = client.result(run.id) if not run.active else None
    if args.json:
        out(as_json(run.raw | {"result": result}))
        return OK
    progress = run.progress
    told = [("run", f"{run.id}, {run.scenario} on {run.server_name or 'another console'}"), ("state", run.state)]
    told += [("arm A", arm(run.arms["A"])), ("arm B", arm(run.arms["B"])), ("started by", run.by)]
    told += [("blocks", f"{progress['done']} of {progress['total']}"), ("now", progress["text"]), ("error", run.error)]
    out(facts(told))
    if result is not None:
        out(f"\n{plain(result['verdict'])}")
        rows = [_measure(each) for each in result["measures"] if each.get("ratio", {}).get("median") is not None]
        if rows:
            out("\n" + table(("MEASURE", "A", "B", "B / A", "INTERVAL", ""), rows))
        for text in result["warnings"]:
            out(f"Warning: {plain(text)}")
    return OK


def _measure(measure: dict[str, Any]) -> list[Any]:
    ratio, unit = measure["ratio"], measure.get("unit", "")
    a, b = (measure.get(name, {}).get("median") for name in ("a", "b"))
    interval = "-" if ratio["low"] is None else f"{ratio['low']:.3f} to {ratio['high']:.3f}"
    sides = [f"{each:.3f} {unit}".rstrip() if each is not None else "-" for each in (a, b)]
    return [measure["label"], *sides, f"{ratio['median']:.3f}", interval, measure.get("word", "")]


def run_export(client: Client, args: Namespace) -> int:
    out(json.dumps(client.export(args.run), ensure_ascii=False, allow_nan=False))
    return OK


def run_stop(client: Client, args: Namespace) -> int:
    stopped = client.stop_run(args.run)
    out(as_json(stopped.raw) if args.json else f"Run {stopped.id} is {stopped.state}.")
    return OK


def samples(client: Client, args: Namespace) -> int:
    if args.csv:
        sys.stdout.write(client.samples_csv(args.run).replace("\r\n", "\n"))
        return OK
    found = client.samples(args.run, stream=args.stream, arm=args.arm, outcome=args.outcome)
    head = ("PAIR", "ARM", "STREAM", "OUTCOME", "WAIT S", "TTFT S", "E2E S", "PROMPT", "CACHED", "GENERATED")

    def row(each: Any) -> tuple[Any, ...]:
        times = (seconds(each.wait_s), seconds(each.ttft_s), seconds(each.wall_s))
        outcome = each.outcome or ("ok" if each.ok else "failed")
        return each.pair, each.arm, each.stream, outcome, *times, each.n_prompt, each.n_cached, each.n_generated

    return listed(args, found, head, row, "No samples.")
