from __future__ import annotations

import logging
from pathlib import Path

import pytest

from engine.options import DEFAULT_MODEL, Options, parse_options
from engine.options_accepted import ACCEPTED
from engine.options_tasks import TaskOptions
from engine.scheduler.policy import FIELDS, BarrierJoin, PhaseMode, Policy, PrefillOrder, RotationStart, Speculative
from engine.scheduler.task import SamplingParams


def options(*argv: str, **environ: str) -> Options:
    return parse_options(argv, environ)


def test_defaults_are_llama_servers() -> None:
    found = options()
    assert (found.host, found.port) == ("127.0.0.1", 8080)
    assert (found.n_batch, found.n_ubatch, found.n_ctx, found.n_predict) == (2048, 512, 0, -1)
    assert found.slots_endpoint
    assert not found.metrics_endpoint
    assert found.model == DEFAULT_MODEL
    assert not found.model_given
    assert found.slot_prompt_similarity == 0.1


@pytest.mark.parametrize(
    ("argv", "environ", "expected"),
    [
        ([], {}, (4, "unified", "auto")),
        (["-np", "-1"], {}, (4, "unified", "auto")),
        (["-np", "3"], {}, (3, "split", "flag")),
        (["--no-kv-unified"], {}, (4, "split", "flag")),
        (["-np", "2", "-kvu"], {}, (2, "unified", "flag")),
        ([], {"LLAMA_ARG_N_PARALLEL": "2"}, (2, "split", "flag")),
        ([], {"LLAMA_ARG_KV_UNIFIED": "off"}, (4, "split", "flag")),
        ([], {"LLAMA_ARG_NO_KV_UNIFIED": "1"}, (4, "split", "flag")),
        (["-kvu"], {"LLAMA_ARG_KV_UNIFIED": "0"}, (4, "unified", "flag")),
    ],
)
def test_slots_and_kv_mode(argv: list[str], environ: dict[str, str], expected: tuple[int, str, str]) -> None:
    found = options(*argv, **environ)
    assert (found.n_slots, found.kv_mode, found.kv_from) == expected


def test_a_flag_wins_over_the_environment() -> None:
    assert options(LLAMA_ARG_CTX_SIZE="1024", LLAMA_ARG_PORT="9").n_ctx == 1024
    assert options("--ctx-size", "2048", LLAMA_ARG_CTX_SIZE="1024").n_ctx == 2048


def test_model_and_name() -> None:
    found = options("--model", "/models/some.gguf")
    assert found.model == Path("/models/some.gguf")
    assert found.alias == "some"
    assert options("-m", "/models/some.gguf", "-a", "nice").alias == "nice"


def test_policy_at_the_start() -> None:
    found = options("--prefill-order", "rotating", "--rotation-start", "after_last", PHASE="barrier").policy
    assert (found.prefill_order, found.rotation_start, found.phase) == (
        PrefillOrder.ROTATING,
        RotationStart.AFTER_LAST,
        PhaseMode.BARRIER,
    )


POLICY_VALUES = {
    "prefill_order": ("fair", PrefillOrder.FAIR),
    "rotation_start": ("after_last", RotationStart.AFTER_LAST),
    "phase": ("barrier", PhaseMode.BARRIER),
    "prefill_chunk": ("64", 64),
    "decode_share": ("0.5", 0.5),
    "barrier_join": ("window", BarrierJoin.WINDOW),
    "barrier_join_window_ms": ("250", 250),
    "barrier_max_hold_ms": ("2000", 2000),
    "barrier_max_generation_tokens": ("7", 7),
    "speculative": ("ngram", Speculative.NGRAM),
    "speculative_n_max": ("8", 8),
    "speculative_n_min": ("2", 2),
    "speculative_ngram_size": ("12", 12),
}


@pytest.mark.parametrize(
    ("argv", "environ", "expected"),
    [
        (["--spec-type", "ngram-simple", "--draft-max", "8", "--draft-min", "2"], {}, ("ngram", 8, 2, 4)),
        (["--spec-type", "draft-simple,ngram-mod", "--spec-ngram-simple-size-n", "12"], {}, ("ngram", 16, 0, 12)),
        (["--spec-type", "none"], {"LLAMA_ARG_DRAFT_MAX": "100"}, ("off", 64, 0, 4)),
        (["--model-draft", "draft.gguf"], {}, ("draft", 16, 0, 4)),
        (["--model-draft", "draft.gguf", "--speculative", "off"], {}, ("off", 16, 0, 4)),
        ([], {"LLAMA_ARG_SPEC_TYPE": "ngram-map-k", "LLAMA_ARG_SPEC_DRAFT_N_MIN": "3"}, ("ngram", 16, 3, 4)),
    ],
)
def test_llama_servers_names_for_drafts(argv: list[str], environ: dict[str, str], expected: tuple[object, ...]) -> None:
    found = options(*argv, **environ).policy
    assert (found.speculative, found.speculative_n_max, found.speculative_n_min, found.speculative_ngram_size) == expected


@pytest.mark.parametrize("name", FIELDS)
def test_every_policy_field_can_be_set_at_the_start(name: str) -> None:
    text, value = POLICY_VALUES[name]
    flag = "--" + name.replace("_", "-")
    assert getattr(options(flag, text).policy, name) == value
    assert getattr(options(**{name.upper(): text}).policy, name) == value
    other = FIELDS[name]
    plain = "none" if other.default is None else str(other.default)
    assert options(flag, plain, **{name.upper(): text}).policy == Policy()  # the flag wins


@pytest.mark.parametrize(
    ("argv", "environ", "sentence"),
    [
        (["--prefill-chunk", "65", "-b", "64"], {}, "'65' is not a whole number from 1 to 64 or none"),
        (
            ["--spec-type", "draft-eagle3"],
            {},
            "argument --spec-type: 'draft-eagle3' is not one of none, draft, draft-simple, ngram-",
        ),
        (["--draft-max", "few"], {}, "'few' is not a whole number from 1 to 64"),
        (["--prefill-chunk", "many"], {}, "'many' is not a whole number from 1 to 2048 or none"),
        (["--decode-share", "1"], {}, "'1' is not a number from 0.01 to 0.99 or none"),
        (["--decode-share", "nan"], {}, "'nan' is not a number from 0.01 to 0.99 or none"),
        (
            [],
            {"BARRIER_JOIN_WINDOW_MS": "none"},
            "argument --barrier-join-window-ms: 'none' is not a whole number from 1 to 3600000",
        ),
        ([], {"BARRIER_MAX_HOLD_MS": "1.5"}, "argument --barrier-max-hold-ms: '1.5' is not a whole number"),
        ([], {"BARRIER_JOIN": "late"}, "argument --barrier-join: 'late' is not one of first_completion, window"),
    ],
)
def test_a_wrong_policy_is_one_sentence(
    argv: list[str], environ: dict[str, str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(argv, environ)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert sentence in said
    assert said.count("\n") == 1


def test_keys_from_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# mine\nthird\n\n  # not this\nfirst\n")
    assert options("--api-key", "first, second", "--api-key-file", str(file)).api_keys == ("first", "second", "third")
    assert options(LLAMA_API_KEY="only").api_keys == ("only",)


def test_ubatch_is_at_most_a_batch_and_threads_may_be_automatic() -> None:
    found = options("-b", "64", "-ub", "512", "-t", "-1")
    assert found.n_ubatch == 64
    assert found.n_threads == 0


@pytest.mark.parametrize(
    ("argv", "environ", "named"),
    [
        (["--parallel", "0"], {}, "--parallel"),
        (["--port", "70000"], {}, "--port"),
        (["--batch-size", "many"], {}, "--batch-size"),
        (["--slot-prompt-similarity", "2"], {}, "--slot-prompt-similarity"),
        (["--slot-prompt-similarity", "nan"], {}, "--slot-prompt-similarity"),
        (["--prefill-order", "alphabetic"], {}, "--prefill-order"),
        (["--paralel", "2"], {}, "--paralel"),
        (["--api-key", " , "], {}, "API key"),
        (["--api-key-file", "/nowhere/keys"], {}, "/nowhere/keys"),
        ([], {"LLAMA_ARG_CTX_SIZE": "big"}, "LLAMA_ARG_CTX_SIZE"),
        ([], {"LLAMA_ARG_PORT": "-5"}, "--port"),
        ([], {"LLAMA_ARG_BATCH": "0"}, "--batch-size"),
        ([], {"LLAMA_ARG_KV_UNIFIED": "maybe"}, "LLAMA_ARG_KV_UNIFIED"),
        ([], {"BACKEND": "vapour"}, "--backend"),
        ([], {"PHASE": "lunar"}, "--phase"),
    ],
)
def test_what_is_wrong_is_named(argv: list[str], environ: dict[str, str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(argv, environ)
    assert ended.value.code == 2
    assert named in capsys.readouterr().err


def test_flags_without_effect_are_taken_and_named_once() -> None:
    found = options(
        "-ngl", "99", "--mlock", "-fa", "on", "--mlock", "--no-mmap", LLAMA_ARG_NUMA="distribute", LLAMA_ARG_NO_MMAP="1"
    )
    assert found.no_effect == (
        "-ngl has no effect here.",
        "--mlock has no effect here.",
        "-fa has no effect here.",
        "--no-mmap has no effect here.",
        "LLAMA_ARG_NO_MMAP has no effect here.",
        "LLAMA_ARG_NUMA has no effect here.",
    )
    assert "--model" in options("-hf", "some/model").no_effect[0]
    assert options("-np", "2", LLAMA_ARG_CTX_SIZE="512", OTHER="x").no_effect == ()


def test_every_flag_of_the_table_is_taken() -> None:
    for entry in ACCEPTED:
        for name in entry.names:
            assert name.startswith("-"), entry
            parse_options([name, *["1"] * entry.n_values], {})


def test_sampling_defaults() -> None:
    found = options(
        "--temp", "0.5", "--samplers", "top_k;typical_p", "-l", "15043-1.5", "--seed", "7", LLAMA_ARG_TOP_K="3"
    ).sampling
    assert (found.temperature, found.top_k, found.seed) == (0.5, 3, 7)
    assert found.samplers == ("top_k", "typ_p")
    assert found.logit_bias == ((15043, -1.5),)
    assert options("--sampler-seq", "kt").sampling.samplers == ("top_k", "temperature")
    assert options("--dry-sequence-breaker", "\\n", "--dry-sequence-breaker", "x").sampling.dry_sequence_breakers == ("\n", "x")
    assert options().sampling == SamplingParams()
    assert options("--json-schema", '{"type": "object"}').json_schema == {"type": "object"}


def test_server_flags(tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.write_text("{{ messages }}")
    found = options("--api-prefix", "/llm/", "--cors-origins", "https://a.example, localhost", "--no-cors-credentials").server
    assert found.api_prefix == "/llm"
    assert found.cors.origins == ("https://a.example", "localhost")
    assert not found.cors.credentials
    assert options("--chat-template-file", str(template)).server.chat_template == "{{ messages }}"
    assert options("-lv", "1").server.log_level == logging.ERROR
    assert options("--timeout", "5", LLAMA_ARG_SSE_PING_INTERVAL="-1").server.ping_s == 0


@pytest.mark.parametrize(
    ("argv", "environ", "named"),
    [
        ([], {"LLAMA_ARG_CTX_SIZ": "5"}, "LLAMA_ARG_CTX_SIZ"),
        ([], {"LLAMA_ARG_TOP_K": "few"}, "LLAMA_ARG_TOP_K"),
        (["--temp", "nan"], {}, "--temp"),
        (["--samplers", "top_k;top_k"], {}, "--samplers"),
        (["--sampler-seq", "kz"], {}, "--sampler-seq"),
        (["--logit-bias", "5"], {}, "--logit-bias"),
        (["--json-schema", "[1]"], {}, "--json-schema"),
        (["--grammar-file", "/nowhere/grammar"], {}, "/nowhere/grammar"),
        (["--api-prefix", "llm"], {}, "--api-prefix"),
        (["--ssl-key-file", "/nowhere/key"], {}, "--ssl-cert-file"),
        (["--ssl-key-file", "/nowhere/key", "--ssl-cert-file", "/nowhere/cert"], {}, "--ssl-key-file"),
        (["--chat-template", "llama9"], {}, "llama9"),
        (["--slot-save-path", "/nowhere/slots"], {}, "--slot-save-path"),
    ],
)
def test_what_is_wrong_with_the_rest_is_named(
    argv: list[str], environ: dict[str, str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_options(argv, environ)
    assert named in capsys.readouterr().err


def test_adapters_count_over_both_flags_in_their_order() -> None:
    found = options("--lora", "a.gguf,b.gguf", "--lora-scaled", 'c.gguf:0.5,"d,e.gguf:-2"', "--lora", "f:1.gguf").tasks.lora
    assert [(str(file.path), file.scale) for file in found] == [
        ("a.gguf", 1.0),
        ("b.gguf", 1.0),
        ("c.gguf", 0.5),
        ("d,e.gguf", -2.0),
        ("f:1.gguf", 1.0),
    ]
    assert [file.scale for file in options("--lora-scaled", "a:0.5", "--lora-init-without-apply").tasks.lora] == [0.0]
    assert options().tasks.lora == ()


def test_flags_of_tasks() -> None:
    assert options().tasks == TaskOptions()
    found = options("--reranking", "--context-shift", "--keep", "-1", "--spm-infill").tasks
    assert found == TaskOptions((), True, True, "rank", True, -1, True)
    found = options(LLAMA_ARG_EMBEDDINGS="1", LLAMA_ARG_POOLING="cls", LLAMA_ARG_CONTEXT_SHIFT="1").tasks
    assert found == TaskOptions((), True, False, "cls", True)
    assert not options("--no-context-shift", LLAMA_ARG_CONTEXT_SHIFT="1").tasks.context_shift


@pytest.mark.parametrize(
    ("argv", "environ", "named"),
    [
        (["--lora", ""], {}, "--lora"),
        (["--lora", "a,,b"], {}, "--lora"),
        (["--lora-scaled", "a.gguf"], {}, "FILE:SCALE"),
        (["--lora-scaled", "a.gguf:big"], {}, "FILE:SCALE"),
        (["--lora-scaled", "a.gguf:inf"], {}, "FILE:SCALE"),
        (["--pooling", "best"], {}, "--pooling"),
        ([], {"LLAMA_ARG_POOLING": "best"}, "--pooling"),
        (["--reranking", "--pooling", "mean"], {}, "--rerank"),
        (["--keep", "-2"], {}, "--keep"),
    ],
)
def test_wrong_flags_of_tasks_are_named(
    argv: list[str], environ: dict[str, str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(argv, environ)
    assert ended.value.code == 2
    assert named in capsys.readouterr().err
