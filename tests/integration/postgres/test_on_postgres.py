"""Tests of the database run a second time, against a PostgreSQL of their own: migrations from nothing, then these.

The files named case_… are for PostgreSQL alone, so pytest collects them only where they are named; the others have run on SQLite
already. Settings choose one database for a whole process, so this is a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.postgres import running_postgres
from tests.support.stack import ROOT

HERE = "tests/integration/postgres"
CHOSEN = (
    f"{HERE}/case_at_once.py",
    f"{HERE}/case_upgrade_and_backup.py",
    "tests/unit/audit/test_trail.py",
    "tests/unit/alerts/test_outbox.py",
    "tests/unit/workers/test_retention.py",
    "tests/unit/dashboard/test_result_pages.py",
    "tests/integration/scheduler_api/test_history.py",
    "tests/integration/scheduler_api/test_policy_windows.py",
    "tests/integration/workers/test_lease_and_restore.py",
    "tests/integration/workers/test_queueing.py",
)
#: They wait for seconds of the clock, whatever the database.
NOT_AGAIN = "watch or written_down"


@pytest.mark.timeout(300)
def test_the_database_tests_pass_on_postgresql() -> None:
    # The cluster goes as a whole: nothing has to be cleaned up in it.
    options = ("-q", "-n0", "--reuse-db", "-p", "no:cacheprovider", "-k", f"not ({NOT_AGAIN})")
    with running_postgres() as cluster:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *CHOSEN],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": cluster.url()},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
