"""llama-server's flags and variables that do nothing here: taken, so that start scripts need not change, and named once."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

# One a line: names, how many values follow, environment variables.
_TABLE = """
--perf --no-perf                                    0 LLAMA_ARG_PERF
--escape -e --no-escape                             0
--verbose-prompt                                    0
--special -sp                                       0
--warmup --no-warmup                                0
--offline                                           0 LLAMA_ARG_OFFLINE
--check-tensors                                     0
--cpu-mask -C                                       1
--cpu-range -Cr                                     1
--cpu-strict                                        1
--prio                                              1
--poll                                              1
--cpu-mask-batch -Cb                                1
--cpu-range-batch -Crb                              1
--cpu-strict-batch                                  1
--prio-batch                                        1
--poll-batch                                        1
--numa                                              1 LLAMA_ARG_NUMA
--threads-http                                      1 LLAMA_ARG_THREADS_HTTP
--kv-unified-per-slot                               1 LLAMA_ARG_KV_UNIFIED_PER_SLOT
--swa-full                                          0 LLAMA_ARG_SWA_FULL
--ctx-checkpoints -ctxcp --swa-checkpoints          1 LLAMA_ARG_CTX_CHECKPOINTS
--checkpoint-min-step                               1 LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT
--cache-ram -cram                                   1 LLAMA_ARG_CACHE_RAM
--cache-idle-slots --no-cache-idle-slots            0 LLAMA_ARG_CACHE_IDLE_SLOTS
--cache-reuse                                       1 LLAMA_ARG_CACHE_REUSE
--flash-attn -fa                                    1 LLAMA_ARG_FLASH_ATTN
--backend-sampling -bs                              0 LLAMA_ARG_BACKEND_SAMPLING
--attention                                         1
--rope-scaling                                      1 LLAMA_ARG_ROPE_SCALING_TYPE
--rope-scale                                        1 LLAMA_ARG_ROPE_SCALE
--rope-freq-base                                    1 LLAMA_ARG_ROPE_FREQ_BASE
--rope-freq-scale                                   1 LLAMA_ARG_ROPE_FREQ_SCALE
--yarn-orig-ctx                                     1 LLAMA_ARG_YARN_ORIG_CTX
--yarn-ext-factor                                   1 LLAMA_ARG_YARN_EXT_FACTOR
--yarn-attn-factor                                  1 LLAMA_ARG_YARN_ATTN_FACTOR
--yarn-beta-slow                                    1 LLAMA_ARG_YARN_BETA_SLOW
--yarn-beta-fast                                    1 LLAMA_ARG_YARN_BETA_FAST
--grp-attn-n -gan                                   1 LLAMA_ARG_GRP_ATTN_N
--grp-attn-w -gaw                                   1 LLAMA_ARG_GRP_ATTN_W
--kv-offload -kvo --no-kv-offload -nkvo             0 LLAMA_ARG_KV_OFFLOAD
--repack --no-repack -nr                            0 LLAMA_ARG_REPACK
--no-host                                           0 LLAMA_ARG_NO_HOST
--cache-type-k -ctk                                 1 LLAMA_ARG_CACHE_TYPE_K
--cache-type-v -ctv                                 1 LLAMA_ARG_CACHE_TYPE_V
--defrag-thold -dt                                  1 LLAMA_ARG_DEFRAG_THOLD
--rpc                                               1 LLAMA_ARG_RPC
--load-mode -lm                                     1 LLAMA_ARG_LOAD_MODE
--lazy-mode -lzm                                    1 LLAMA_ARG_LAZY_MODE
--mlock                                             0 LLAMA_ARG_MLOCK
--mmap --no-mmap                                    0 LLAMA_ARG_MMAP
--direct-io -dio --no-direct-io -ndio               0 LLAMA_ARG_DIO
--device -dev                                       1 LLAMA_ARG_DEVICE
--list-devices                                      0
--override-tensor -ot                               1 LLAMA_ARG_OVERRIDE_TENSOR
--cpu-moe -cmoe                                     0 LLAMA_ARG_CPU_MOE
--n-cpu-moe -ncmoe                                  1 LLAMA_ARG_N_CPU_MOE
--moe-cache-mib                                     1 LLAMA_ARG_MOE_CACHE_MIB
--n-cpu-ffn -ncffn                                  1 LLAMA_ARG_N_CPU_FFN
--gpu-layers -ngl --n-gpu-layers                    1 LLAMA_ARG_N_GPU_LAYERS
--split-mode -sm                                    1 LLAMA_ARG_SPLIT_MODE
--tensor-split -ts                                  1 LLAMA_ARG_TENSOR_SPLIT
--main-gpu -mg                                      1 LLAMA_ARG_MAIN_GPU
--fit -fit                                          1 LLAMA_ARG_FIT
--fit-print -fitp                                   1 LLAMA_ARG_FIT_ESTIMATE
--fit-target -fitt                                  1 LLAMA_ARG_FIT_TARGET
--fit-ctx -fitc                                     1 LLAMA_ARG_FIT_CTX
--override-kv                                       1
--op-offload --no-op-offload                        0
--control-vector                                    1
--control-vector-scaled                             1
--control-vector-layer-range                        2
--tags                                              1 LLAMA_ARG_TAGS
--model-url -mu                                     1 LLAMA_ARG_MODEL_URL
--docker-repo -dr                                   1 LLAMA_ARG_DOCKER_REPO
--hf-repo -hf -hfr                                  1 LLAMA_ARG_HF_REPO
--hf-file -hff                                      1 LLAMA_ARG_HF_FILE
--hf-token -hft                                     1
--hf-repo-v -hfv -hfrv                              1 LLAMA_ARG_HF_REPO_V
--hf-file-v -hffv                                   1 LLAMA_ARG_HF_FILE_V
--mmproj -mm                                        1 LLAMA_ARG_MMPROJ
--mmproj-url -mmu                                   1 LLAMA_ARG_MMPROJ_URL
--mmproj-auto --no-mmproj --no-mmproj-auto          0 LLAMA_ARG_MMPROJ_AUTO
--mmproj-offload --no-mmproj-offload                0 LLAMA_ARG_MMPROJ_OFFLOAD
--mmproj-device -mmdev                              1
--image-min-tokens                                  1 LLAMA_ARG_IMAGE_MIN_TOKENS
--image-max-tokens                                  1 LLAMA_ARG_IMAGE_MAX_TOKENS
--mtmd-batch-max-tokens                             1 LLAMA_ARG_MTMD_BATCH_MAX_TOKENS
--video-fps                                         1 LLAMA_ARG_VIDEO_FPS
--video-timestamp-interval                          1 LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL
--video-ffmpeg-dir                                  1 LLAMA_ARG_VIDEO_FFMPEG_DIR
--media-path                                        1
--embd-normalize                                    1
--path                                              1 LLAMA_ARG_STATIC_PATH
--ui-config --webui-config                          1 LLAMA_ARG_UI_CONFIG
--ui-config-file --webui-config-file                1 LLAMA_ARG_UI_CONFIG_FILE
--ui-mcp-proxy --no-ui-mcp-proxy --webui-mcp-proxy --no-webui-mcp-proxy 0 LLAMA_ARG_UI_MCP_PROXY
--ui --no-ui --webui --no-webui                     0 LLAMA_ARG_UI
--tools                                             1 LLAMA_ARG_TOOLS
--tools-runtime                                     1 LLAMA_ARG_TOOLS_RUNTIME
--mcp-servers-config                                1 LLAMA_ARG_MCP_SERVERS_CONFIG
--mcp-servers-json                                  1 LLAMA_ARG_MCP_SERVERS_JSON
--agent --no-agent -no-ag                           0 LLAMA_ARG_AGENT
--models-preset                                     1 LLAMA_ARG_MODELS_PRESET
--models-max                                        1 LLAMA_ARG_MODELS_MAX
--models-autoload --no-models-autoload              0 LLAMA_ARG_MODELS_AUTOLOAD
--sleep-idle-seconds                                1
--jinja --no-jinja                                  0 LLAMA_ARG_JINJA
--reasoning-format                                  1 LLAMA_ARG_THINK
--reasoning -rea                                    1 LLAMA_ARG_REASONING
--reasoning-effort                                  1 LLAMA_ARG_REASONING_EFFORT
--reasoning-budget                                  1 LLAMA_ARG_THINK_BUDGET
--reasoning-budget-message                          1 LLAMA_ARG_THINK_BUDGET_MESSAGE
--reasoning-preserve --no-reasoning-preserve        0 LLAMA_ARG_REASONING_PRESERVE
--skip-chat-parsing --no-skip-chat-parsing          0 LLAMA_ARG_SKIP_CHAT_PARSING
--lookup-cache-static -lcs                          1
--lookup-cache-dynamic -lcd                         1
--log-colors                                        1 LLAMA_ARG_LOG_COLORS
--log-prefix --no-log-prefix                        0 LLAMA_ARG_LOG_PREFIX
--log-timestamps --no-log-timestamps                0 LLAMA_ARG_LOG_TIMESTAMPS
--log-jsonl --no-log-jsonl                          0 LLAMA_ARG_LOG_JSONL
--log-prompts-dir                                   1
--spec-default                                      0
--spec-synth-len                                    1 LLAMA_ARG_SPEC_SYNTH_LEN
--spec-synth-rates                                  1 LLAMA_ARG_SPEC_SYNTH_RATES
--spec-draft-hf -hfd -hfrd --hf-repo-draft          1 LLAMA_ARG_SPEC_DRAFT_HF_REPO LLAMA_ARG_HFD_REPO
--spec-draft-threads -td --threads-draft            1
--spec-draft-threads-batch -tbd --threads-batch-draft 1
--spec-draft-cpu-mask -Cd --cpu-mask-draft          1
--spec-draft-cpu-range -Crd --cpu-range-draft       1
--spec-draft-cpu-strict --cpu-strict-draft          1
--spec-draft-prio --prio-draft                      1
--spec-draft-poll --poll-draft                      1
--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft 1
--spec-draft-cpu-range-batch -Crbd --cpu-range-batch-draft 1
--spec-draft-cpu-strict-batch --cpu-strict-batch-draft 1
--spec-draft-prio-batch --prio-batch-draft          1
--spec-draft-poll-batch --poll-batch-draft          1
--spec-draft-type-k -ctkd --cache-type-k-draft      1 LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K LLAMA_ARG_CACHE_TYPE_K_DRAFT
--spec-draft-type-v -ctvd --cache-type-v-draft      1 LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V LLAMA_ARG_CACHE_TYPE_V_DRAFT
--spec-draft-override-tensor -otd --override-tensor-draft 1
--spec-draft-cpu-moe -cmoed --cpu-moe-draft         0 LLAMA_ARG_SPEC_DRAFT_CPU_MOE LLAMA_ARG_CPU_MOE_DRAFT
--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft 1 LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE LLAMA_ARG_N_CPU_MOE_DRAFT
--spec-draft-p-split --draft-p-split                1 LLAMA_ARG_SPEC_DRAFT_P_SPLIT LLAMA_ARG_DRAFT_P_SPLIT
--spec-draft-p-min --draft-p-min                    1 LLAMA_ARG_SPEC_DRAFT_P_MIN LLAMA_ARG_DRAFT_P_MIN
--spec-draft-backend-sampling --no-spec-draft-backend-sampling 0 LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING
--spec-draft-sampling                               1 LLAMA_ARG_SPEC_DRAFT_SAMPLING
--spec-draft-device -devd --device-draft            1
--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft 1 LLAMA_ARG_N_GPU_LAYERS_DRAFT
--spec-ngram-mod-n-min                              1
--spec-ngram-mod-n-max                              1
--spec-ngram-mod-n-match                            1
--spec-ngram-simple-min-hits                        1
--spec-ngram-map-k-size-n                           1
--spec-ngram-map-k-size-m                           1
--spec-ngram-map-k-min-hits                         1
--spec-ngram-map-k4v-size-n                         1
--spec-ngram-map-k4v-size-m                         1
--spec-ngram-map-k4v-min-hits                       1
--spec-ngram-min-hits                               1
--model-vocoder -mv                                 1
--tts-use-guide-tokens                              0
--tts-lang                                          1
--tts-speaker-file                                  1
--embd-gemma-default                                0
--fim-qwen-1.5b-default                             0
--fim-qwen-3b-default                               0
--fim-qwen-7b-default                               0
--fim-qwen-7b-spec                                  0
--fim-qwen-14b-spec                                 0
--fim-qwen-30b-default                              0
--gpt-oss-20b-default                               0
--gpt-oss-120b-default                              0
--vision-gemma-4b-default                           0
--vision-gemma-12b-default                          0
"""
# Where another way leads to what was wanted.
_OTHER_SOURCES = ("--model-url", "--docker-repo", "--hf-repo", "--hf-file", "--models-preset")
_INSTEAD = dict.fromkeys(_OTHER_SOURCES, "give the path of a GGUF file with --model")
VARIABLES = "LLAMA_ARG_"


@dataclass(frozen=True, slots=True)
class Accepted:
    """`n_values` follow the flag on the command line."""

    names: tuple[str, ...]
    n_values: int
    variables: tuple[str, ...]

    def sentence(self, given: str) -> str:
        instead = _INSTEAD.get(self.names[0])
        return f"{given} has no effect here" + (f": {instead}." if instead else ".")


def _read(line: str) -> Accepted:
    words = line.split()
    at = next(place for place, word in enumerate(words) if word.isdigit())
    return Accepted(tuple(words[:at]), int(words[at]), tuple(words[at + 1 :]))


ACCEPTED = tuple(_read(line) for line in _TABLE.strip().splitlines())


class _Note(argparse.Action):
    """Remembers that the flag was given."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        entry: Accepted = self.const
        noted: list[str] = namespace.no_effect
        sentence = entry.sentence(option_string or entry.names[0])
        if sentence not in noted:
            noted.append(sentence)


def add_accepted(parser: argparse.ArgumentParser) -> None:
    """Adds what the parser does not know yet. Sentences gather in the namespace's `no_effect`."""
    known = parser._option_string_actions
    parser.set_defaults(no_effect=[])
    for entry in ACCEPTED:
        names = [name for name in entry.names if name not in known]
        if names:
            parser.add_argument(
                *names, action=_Note, nargs=entry.n_values, const=entry, dest=argparse.SUPPRESS, help=argparse.SUPPRESS
            )


def check_variables(environ: Mapping[str, str], understood: Collection[str]) -> tuple[list[str], list[str]]:
    """Sentences for variables without effect, and the names of unknown ones. `understood` are those that are read elsewhere."""
    accepted = {variable: entry for entry in ACCEPTED for variable in entry.variables}
    sentences, unknown = [], []
    for name in sorted(environ):
        if not name.startswith(VARIABLES) or name in understood or not environ[name]:
            continue
        entry = accepted.get(name) or accepted.get(name.replace("LLAMA_ARG_NO_", VARIABLES, 1))
        if entry is not None:
            sentences.append(entry.sentence(name))
        elif name.replace("LLAMA_ARG_NO_", VARIABLES, 1) not in understood:
            unknown.append(name)
    return sentences, unknown
