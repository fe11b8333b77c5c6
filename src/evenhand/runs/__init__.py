"""Run folders: what was asked, checkpoints, metrics, and going on where a run was interrupted."""

from evenhand.disk import DiskFull
from evenhand.runs.checkpoint import Checkpoint, Record, load_newest, newest_record, save_checkpoint
from evenhand.runs.folder import Progress, RunFolder, new_run_path
from evenhand.runs.metrics_file import Metrics, spread

__all__ = [
    "Checkpoint",
    "DiskFull",
    "Metrics",
    "Progress",
    "Record",
    "RunFolder",
    "load_newest",
    "new_run_path",
    "newest_record",
    "save_checkpoint",
    "spread",
]
