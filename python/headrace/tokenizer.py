"""A model's tokenizer."""

from __future__ import annotations

from typing import List, Sequence, Union

from ._engine import EmbeddingModel, TextModel


class Tokenizer:
    def __init__(self, model: Union[TextModel, EmbeddingModel]) -> None:
        self._model = model

    def encode(self, text: str) -> List[int]:
        """With the tokens that the model puts around a text; control tokens that are spelled in it are text."""
        return self._model.encode(text)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text that the ids continue another with; U+FFFD for bytes that are no character."""
        return self._model.decode(list(token_ids), skip_special_tokens)
