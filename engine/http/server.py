"""The process: socket first, then the model, then requests; and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import uvicorn

from engine.backends import create_backend
from engine.backends.base import Backend, ModelError
from engine.clock import RealClock
from engine.http.app import create_app
from engine.http.state import ServerState, default_sampling
from engine.options import Options
from engine.runner import Runner
from engine.scheduler.config import SchedulerConfig
from engine.scheduler.core import Scheduler
from engine.tiny_model import ensure_tiny_model

log = logging.getLogger("engine")

# How long a thread may keep the GIL while the loop thread wants it back after a batch; the default of 5 ms is three steps of a
# small model.
SWITCH_INTERVAL_S = 1e-4
GRACE_S = 1  # for open connections at the end
DRAIN_LOOK_S = 0.05  # how often a drain looks whether it is done
BATCH_GRACE_S = 0.5  # for the running batch at the end


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are handled by `serve`: uvicorn would end the process by the signal itself, and not with code 0."""
        yield


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Raises OSError when the address cannot be had."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind(address)
        sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock


def load_backend(options: Options) -> Backend:
    """Raises ModelError with one sentence for the operator."""
    path = options.model
    if options.backend == "llama" and not options.model_given:
        try:
            path = ensure_tiny_model(options.model)
        except OSError as exc:
            raise ModelError(f"The tiny model cannot be written to {options.model}: {exc.strerror}.") from exc
    backend = create_backend(options.backend, path, options.backend_options, RealClock())
    default_sampling(options, backend)
    return backend


def make_scheduler(options: Options, backend: Backend, now: float) -> Scheduler:
    info = backend.info
    if options.tasks.context_shift and not info.can_shift:
        log.warning("This model's memory cannot shift: a full slot ends its task, as without --context-shift")
    config = SchedulerConfig(
        n_slots=options.n_slots,
        n_ctx_slot=info.n_ctx_slot,
        n_ctx=info.n_ctx,
        n_batch=info.n_batch,
        n_ubatch=info.n_ubatch,
        kv_mode=info.kv_mode,
        kv_from=options.kv_from,
        can_trim=info.can_trim,
        can_draft=info.can_draft,
        draft_model=info.draft_model,
        draft_unfit=info.draft_unfit,
        slot_prompt_similarity=options.slot_prompt_similarity,
        cont_batching=options.cont_batching,
        context_shift=options.tasks.context_shift and info.can_shift,
        split_embeddings=info.pooling == "last" and info.generates,
    )
    return Scheduler(config, options.policy, now)


async def serve(options: Options, sock: socket.socket, load: Callable[[Options], Backend] = load_backend) -> int:
    """Runs until a signal, and then for as long as it takes to drain; the exit code. `load` is called aside."""
    loop = asyncio.get_running_loop()
    clock = RealClock()
    state = ServerState(options, clock, started_at=clock.now())
    config = uvicorn.Config(
        create_app(state),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        ssl_keyfile=options.server.ssl_key,
        ssl_certfile=options.server.ssl_cert,
    )
    server = _Server(config)
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, _on_signal, state)
    serving = asyncio.create_task(server.serve([sock]))
    print(f"Listening on {url_of(sock, options)}, loading the model", flush=True)
    code = await _load_and_wait(options, state, sock, load)
    stopped = await asyncio.to_thread(state.runner.stop, BATCH_GRACE_S) if state.runner is not None else True
    server.should_exit = True
    await serving
    if state.runner is not None and stopped:
        state.runner.backend.close()
    return code


def _on_signal(state: ServerState) -> None:
    """The first one drains, the second ends."""
    if state.draining.is_set():
        state.stopping.set()
    state.draining.set()


async def _drain(state: ServerState, runner: Runner) -> None:
    """Lets the tasks that are here come to their end, within the limit; new ones are refused from now on."""
    runner.door.closed = True
    limit = state.options.server.drain_s
    if limit and runner.n_tasks:
        log.info("Draining: %d tasks may go on for %g s; another signal ends them", runner.n_tasks, limit)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while runner.n_tasks and not state.stopping.is_set():
                    await asyncio.sleep(DRAIN_LOOK_S)
        if runner.n_tasks:
            log.warning("%d tasks are ended before they are done", runner.n_tasks)
    state.stopping.set()


async def _load_and_wait(options: Options, state: ServerState, sock: socket.socket, load: Callable[[Options], Backend]) -> int:
    """Loads the model beside the server, which says 503 meanwhile; then waits for a signal, and drains."""
    loading = _load_aside(options, load)
    stopping = asyncio.create_task(state.draining.wait())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        return 0
    try:
        backend = loading.result()
    except ModelError as exc:
        print(exc, file=sys.stderr, flush=True)
        stopping.cancel()
        return 1
    scheduler = make_scheduler(options, backend, state.clock.now())
    runner = Runner(scheduler, backend, state.clock, asyncio.get_running_loop(), queue_limit=options.queue_limit)
    gc.collect()
    gc.freeze()  # a collection during service need not look at what was made before it
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    runner.start()
    state.ready(runner)
    print(start_line(options, backend, sock), flush=True)
    await stopping
    await _drain(state, runner)
    return 0


def _load_aside(options: Options, load: Callable[[Options], Backend]) -> asyncio.Future[Backend]:
    """In a daemon thread: a signal need not wait until a large model is loaded."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Backend] = loop.create_future()

    def run() -> None:
        try:
            backend = load(options)
        except BaseException as exc:
            _call(loop, result, exc, None)
        else:
            _call(loop, result, None, backend)

    threading.Thread(target=run, name="engine-load", daemon=True).start()
    return result


def _call(
    loop: asyncio.AbstractEventLoop, result: asyncio.Future[Backend], fault: BaseException | None, backend: Backend | None
) -> None:
    def set_result() -> None:
        if result.done():
            return
        if backend is not None:
            result.set_result(backend)
        elif fault is not None:
            result.set_exception(fault)

    with contextlib.suppress(RuntimeError):  # the event loop ended first
        loop.call_soon_threadsafe(set_result)


def url_of(sock: socket.socket, options: Options) -> str:
    host, port = sock.getsockname()[:2]
    scheme = "https" if options.server.ssl_cert is not None else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def start_line(options: Options, backend: Backend, sock: socket.socket) -> str:
    info = backend.info
    origin = "by flag" if options.kv_from == "flag" else "by automatic parallelism"
    slots = f"{options.n_slots} slots, {info.n_ctx_slot} tokens of context each, {info.kv_mode} KV cache {origin}"
    batch = f"batch {info.n_batch}/{info.n_ubatch}, {info.n_threads} threads"
    return f"Serving {options.alias} ({info.backend}) at {url_of(sock, options)}: {slots}, {batch}"
