"""`python -m engine.drafts check TARGET DRAFT`: exit code 0 when the draft can be used, 1 when not, 2 for a wrong command."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.drafts import MODES, DraftError, Outcome, examine
from engine.drafts.report import lines, report


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.drafts", description="Draft models, before a server is started.")
    check = parser.add_subparsers(required=True).add_parser("check", help="what the engine would do with a draft, and why")
    check.add_argument("target", type=Path, metavar="TARGET", help="GGUF file of the model; of a split one the first")
    check.add_argument("draft", type=Path, metavar="DRAFT", help="GGUF file of the draft model; of a split one the first")
    check.add_argument("--draft-rope", choices=MODES, default="auto", help="as the engine's flag (default: auto)")
    check.add_argument("--json", action="store_true", help="as JSON, as GET /models/check answers")
    args = parser.parse_args(argv)
    try:
        examination = examine(args.target, args.draft, args.draft_rope)
    except DraftError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(report(examination), indent=2) if args.json else "\n".join(lines(examination)))
    return 1 if examination.decision.outcome is Outcome.INVALID else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
