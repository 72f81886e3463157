"""The whole installation in one file, and back: docs/deploy.md, "Backup"."""

from __future__ import annotations


class BackupError(Exception):
    """Why nothing was backed up or restored, as one sentence for the operator."""
