"""Infill on the real engine, with a model that has marks for it and with one that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engine import running_engine
from tests.support.tiny_variants import FIM, write_infill_model, write_small_model

pytestmark = pytest.mark.model

GAP = {"input_prefix": "the cold ", "input_suffix": " queue", "prompt": "warm", "n_predict": 6, "temperature": 0}


@pytest.mark.parametrize("repository", [True, False])
def test_a_gap_is_filled_as_a_completion_of_its_prompt(tmp_path: Path, repository: bool) -> None:
    model = write_infill_model(tmp_path / "fim.gguf", repository=repository)
    with running_engine("-m", str(model), "-np", "1", "-c", "4096") as engine:
        answer = engine.client.post("/infill", json={**GAP, "input_extra": [{"filename": "a", "text": "slot"}]}).json()

        def tokens(text: str) -> list[int]:
            found: list[int] = engine.client.post("/tokenize", json={"content": text, "parse_special": False}).json()["tokens"]
            return found

        if repository:
            extra = [FIM["fim_rep"], *tokens("myproject\n"), FIM["fim_sep"], *tokens("a\n"), *tokens("slot")]
            extra += [FIM["fim_sep"], *tokens("filename\n")]
        else:
            extra = [*tokens("\n\n--- snippet ---\n\n"), *tokens("slot")]
        prefix = [FIM["fim_pre"], *tokens("the cold "), *tokens("warm")]
        prompt = [*extra, 1, *prefix, FIM["fim_suf"], *tokens(" queue"), FIM["fim_mid"]]
        assert answer["tokens_evaluated"] == len(prompt)
        assert answer["content"] == engine.complete(prompt=prompt, n_predict=6)["content"]
        assert answer["content"]


def test_a_model_without_marks_says_what_is_missing(tmp_path: Path) -> None:
    with running_engine("-m", str(write_small_model(tmp_path / "small.gguf")), "-np", "1", "-c", "512") as engine:
        response = engine.client.post("/infill", json=GAP)
        assert response.status_code == 501
        message = (
            "Infill is not supported by this model: prefix token is missing. suffix token is missing. middle token is missing."
        )
        assert response.json()["error"] == {"code": 501, "message": message, "type": "not_supported_error"}
