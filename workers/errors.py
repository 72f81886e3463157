"""What can end a run before its last block.

WorkerError
├── RunFailed      one sentence for the operator, kept in run.error
├── RunStopped     somebody asked for it
├── ShardLost      a worker that sent a part of its load is gone: the run is lost, its own worker is not
└── LeaseLost      the run belongs to nobody or to another worker now: write nothing more
BrokerDown         the message broker does not answer
ExperimentRefused  a run was not started; one sentence for the operator
ExportRefused      a run is not written into a file yet
ImportRefused      a file is not taken as a run; the sentence says what is wrong with it, and where
"""

from __future__ import annotations


class WorkerError(Exception):
    pass


class RunFailed(WorkerError):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ShardLost(WorkerError):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class RunStopped(WorkerError):
    pass


class LeaseLost(WorkerError):
    pass


class BrokerDown(Exception):
    pass


class ExperimentRefused(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ExportRefused(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ImportRefused(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
