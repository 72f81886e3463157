"""The temporal-only layout on real llama.cpp: a legacy DFlash draft with and without it, and the engine's loading of drafts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from cyllama.llama import llama_cpp

from engine.backends.base import BackendOptions, DraftOptions, ModelError
from engine.backends.llama import LlamaBackend
from engine.backends.loading import load_draft, load_model
from engine.drafts import Mode, facts_of, prepare, read_header
from engine.drafts.decide import SECTIONS_KEY, uses_mrope
from engine.drafts.overlay import open_overlay
from engine.tiny_model import ORDINARY_TOKENS
from tests.support.tiny_drafts import write_draft, write_mrope_target

pytestmark = pytest.mark.model

NEOX, MROPE, IMROPE = 2, 8, 40  # llama.cpp's numbers of rope types
FEATURES = 128
TOKENS = list(ORDINARY_TOKENS)[:16]


class Pair:
    """A draft with the plain file's layout and the same one through the overlay, and the target that both belong to."""

    def __init__(self, folder: Path, head: int = 64, shards: int = 1) -> None:
        llama_cpp.disable_logging()
        llama_cpp.llama_backend_init()
        self.target = write_mrope_target(folder / "target.gguf")
        self.draft = write_draft(folder / "draft.gguf", shards=shards, head=head)
        self.plain = self.load("off")
        self.adapted = self.load("auto")

    def load(self, mode: Mode) -> llama_cpp.LlamaModel:
        with prepare(self.target, self.draft, mode) as prepared:
            return load_model(prepared.path)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Running:
    """A model with a context of one sequence."""

    def __init__(self, model: llama_cpp.LlamaModel, stack: ExitStack) -> None:
        params = llama_cpp.LlamaContextParams()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_outputs_max = 256, 64, 64, 64
        params.n_seq_max, params.n_threads, params.n_threads_batch = 1, 1, 1
        self.context = stack.enter_context(llama_cpp.LlamaContext(model=model, params=params, verbose=False))

    def tokens(self, tokens: Sequence[int], first: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Logits of each token, at positions from `first` on."""
        batch = llama_cpp.LlamaBatch(n_tokens=64, embd=0, n_seq_max=1)
        for place, token in enumerate(tokens):
            batch.add(token, first + place, [0], True)
        self.context.decode(batch)
        return np.array([self.context.get_logits_ith(place) for place in range(len(tokens))])

    def features(self, positions: Sequence[int]) -> None:
        """Feed features of the target, as DFlash does for each token that the target has seen."""
        batch = llama_cpp.LlamaBatchExt(self.context)
        draw = np.random.default_rng(1)
        for position in positions:
            place = position if batch.n_pos_per_embd == 1 else [position, position, position, 0]
            batch.add_embd(draw.standard_normal(FEATURES).astype(np.float32), place)
        self.context.process(batch)

    @property
    def last(self) -> int:
        return int(self.context.memory_seq_pos_max(0))


def test_the_overlay_turns_the_rope_type(pair: Pair) -> None:
    assert (pair.plain.rope_type, pair.adapted.rope_type) == (NEOX, MROPE)


@pytest.mark.parametrize(
    ("architecture", "sections"),
    [
        ("qwen2vl", (8, 8, 0, 0)),
        ("qwen2vl", (0, 0, 0, 0)),
        ("qwen3vl", (8, 4, 4, 0)),
        ("hunyuan_vl", (8, 8, 0, 0)),
        ("hunyuan_vl", (16, 0, 0, 0)),
        ("hunyuan_vl", (0, 0, 0, 0)),
        ("dflash", (0, 8, 8, 0)),
        ("dflash", (0, 0, 0, 0)),
    ],
)
def test_which_files_use_mrope_is_what_llama_cpp_makes_of_them(
    tmp_path: Path, architecture: str, sections: tuple[int, ...]
) -> None:
    llama_cpp.disable_logging()
    path = tmp_path / "model.gguf"
    if architecture == "dflash":
        write_draft(path, rope__dimension_sections=sections)
    else:
        write_mrope_target(path, architecture, rope__dimension_sections=sections)
    facts = facts_of(read_header(path))
    assert facts.sections == sections
    assert uses_mrope(facts) is (load_model(path).rope_type in (MROPE, IMROPE))


def test_text_after_a_gap_is_refused_by_the_plain_file_and_accepted_through_the_overlay(pair: Pair, stack: ExitStack) -> None:
    plain, adapted = Running(pair.plain, stack), Running(pair.adapted, stack)
    for running in (plain, adapted):
        running.tokens(TOKENS, 0)
    with pytest.raises(ValueError, match="invalid input batch"):
        plain.tokens([TOKENS[0]], 48)
    assert plain.last == 15
    adapted.tokens([TOKENS[0]], 48)
    assert adapted.last == 48
    with pytest.raises(ValueError, match="invalid input batch"):
        adapted.tokens([TOKENS[0]], 10)  # backwards stays refused


def test_features_of_text_after_an_image_are_refused_and_accepted_alike(pair: Pair, stack: ExitStack) -> None:
    """What DFlash itself does: features of the text before the image, then of the text behind it, then a block to draft."""
    plain, adapted = Running(pair.plain, stack), Running(pair.adapted, stack)
    for running in (plain, adapted):
        running.features(range(16))
    with pytest.raises(ValueError, match="invalid input batch"):
        plain.features([48, 49])
    adapted.features([48, 49])
    drafted = adapted.tokens([TOKENS[0]] * 4, 50)
    assert np.isfinite(drafted).all()
    assert adapted.last == 53


@pytest.mark.parametrize("head", [64, 128])
def test_text_alone_gives_the_same_logits(tmp_path: Path, stack: ExitStack, head: int) -> None:
    """Half of each head rotates, positions begin at 100, as in the comparison of both rotations on single tensors."""
    pair = Pair(tmp_path, head=head)
    plain, adapted = Running(pair.plain, stack), Running(pair.adapted, stack)
    ours, theirs = (running.tokens(TOKENS[:8], 100) for running in (plain, adapted))
    assert np.abs(ours - theirs).max() < 1e-5
    assert np.abs(ours).max() > 1
    # That says something only if angles matter: with pairs in the section whose position is 0 for text, logits change.
    overlay = open_overlay(pair.draft, SECTIONS_KEY, (head // 8, 0, 0, head // 8))
    other = load_model(overlay.path)
    overlay.close()
    assert np.abs(Running(other, stack).tokens(TOKENS[:8], 100) - ours).max() > 1e-2


def test_a_split_draft_loads_through_links(tmp_path: Path, stack: ExitStack) -> None:
    pair = Pair(tmp_path, shards=3)
    assert (pair.plain.rope_type, pair.adapted.rope_type) == (NEOX, MROPE)
    ours, theirs = (Running(model, stack).tokens(TOKENS, 0) for model in (pair.plain, pair.adapted))
    assert np.abs(ours - theirs).max() < 1e-5


def test_the_engine_loads_its_draft_through_the_overlay(pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    draft = write_draft(tmp_path / "mine.gguf")
    before = hashlib.sha256(draft.read_bytes()).hexdigest()
    backend = LlamaBackend(pair.target, BackendOptions(1, 512, "split", n_threads=1, draft=DraftOptions(draft)))
    info = backend.info.draft
    assert "memfd:draft-mine.gguf" in mapped()
    backend.close()
    assert "mine.gguf" not in mapped()  # the copy goes with the model
    assert info is not None
    assert (info.loaded, info.outcome, info.sections) == (True, "inferred", (16, 0, 0, 0))
    assert "Temporal-only rotary sections (16, 0, 0, 0)" in caplog.text
    assert hashlib.sha256(draft.read_bytes()).hexdigest() == before


def mapped() -> str:
    """The files that lie in this process's memory."""
    return Path("/proc/self/maps").read_text()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"rope__dimension_count": 31}, "dflash.rope.dimension_count is 31, an odd number"),
        ({"rope__dimension_count": 66}, "dflash.rope.dimension_count is 66, more than the head of 64"),
        ({"block_count": 0}, "dflash.block_count is 0"),
    ],
)
def test_an_invalid_draft_ends_the_start_or_is_left_out(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: dict[str, int], said: str
) -> None:
    bad = write_draft(tmp_path / "bad.gguf", **keys)
    with pytest.raises(ModelError) as caught:
        load_draft(pair.target, DraftOptions(bad))
    assert said in str(caught.value)
    assert str(caught.value).count(". ") == 0  # one sentence
    model, info = load_draft(pair.target, DraftOptions(bad, optional=True))
    assert (model, info.loaded, info.outcome) == (None, False, "invalid")
    assert said in info.text
    assert "Serving without the draft model" in caplog.text


def test_a_draft_that_llama_cpp_cannot_load_is_told_by_its_own_name(pair: Pair, tmp_path: Path) -> None:
    incomplete = write_draft(tmp_path / "incomplete.gguf", embedding_length=64)
    with pytest.raises(ModelError, match=r"cannot load .*/incomplete\.gguf"):
        load_draft(pair.target, DraftOptions(incomplete))
    model, info = load_draft(pair.target, DraftOptions(tmp_path / "none.gguf", optional=True))
    assert (model, info.outcome) == (None, "unreadable")
