"""Owns the process that carries one run of a campaign out.

`python -m evokernel.campaign.child FOLDER TASK CONFIG`; its events are lines of JSON on standard
output. It ends with the process that started it, and leaves a run that can be resumed.
"""

import json
import signal
import sys
from pathlib import Path

from evokernel.campaign.folder import CampaignFolder, Fault, Progress
from evokernel.config import RunConfig
from evokernel.confinement.kernel import set_death_signal
from evokernel.errors import EvoKernelError, NoTemplate, RecordError, UsageError
from evokernel.optimize import RunStopped, optimize, resume
from evokernel.record import Event


def main(folder: str, name: str, config: str) -> int:
    """Begin the run, or go on with it; a fault is stored for the campaign's table."""
    set_death_signal(signal.SIGTERM)
    place = CampaignFolder(Path(folder))
    entry = next(entry for entry in place.campaign.entries if entry.name == name)
    try:
        _carry_out(place.progress(entry), RunConfig.model_validate_json(config))
    except RunStopped:
        return 130
    except EvoKernelError as error:
        is_tasks = isinstance(error, UsageError) and not isinstance(error, NoTemplate | RecordError)
        kind = type(error).__name__
        place.save_fault(entry, Fault(kind=kind, text=str(error), is_tasks=is_tasks))
        return 1
    return 0


def _carry_out(progress: Progress, config: RunConfig) -> None:
    if progress.run is not None and (progress.run / "checkpoints.sqlite").exists():
        resume(progress.run, on_event=_tell)
    else:  # a run that was killed before its first step has nothing to go on with
        optimize(config.task, config, on_event=_tell)


def _tell(event: Event) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
