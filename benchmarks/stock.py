"""Stock llama-server as a process of its own: `python -m benchmarks.stock MODEL PORT [flags]`.

Runs until its standard input closes, so it cannot outlive the benchmark that started it. Serves on loopback alone.
"""

from __future__ import annotations

import argparse
import sys

from xllamacpp import CommonParams, Server


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stock")
    parser.add_argument("model")
    parser.add_argument("port", type=int)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--ctx-size", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--ubatch-size", type=int, default=512)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--kv-unified", action=argparse.BooleanOptionalAction, default=False)
    args = parser.parse_args()
    params = CommonParams()
    params.model.path = args.model
    params.hostnames, params.port = ["127.0.0.1"], args.port
    params.n_parallel, params.n_ctx, params.kv_unified = args.parallel, args.ctx_size, args.kv_unified
    params.n_batch, params.n_ubatch = args.batch_size, args.ubatch_size
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
    params.cache_ram_mib = 0  # the engine keeps no second copy of prompts either
    params.warmup, params.fit_params, params.verbosity, params.ui = True, False, 0, False
    server = Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
