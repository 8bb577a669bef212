"""Letters beyond ASCII: names get the escapes that NVRTC reads, and the rest of a text stays."""

from __future__ import annotations

import time

import pytest

from pytest_gpulab.devices.source.tokens import in_ascii, tokens

pytestmark = pytest.mark.unit


def test_names_get_escapes_and_comments_stay() -> None:
    text = "// café\n#define née 1\nint größe = née; // né\nint b;\n"
    expected = "// café\n#define n\\U000000e9e 1\nint gr\\U000000f6\\U000000dfe = n\\U000000e9e; // né\nint b;\n"
    assert in_ascii(text) == expected


@pytest.mark.unmeasured
def test_a_long_text_with_one_such_letter_takes_little_more_than_its_tokens() -> None:
    """It took 14 times as long when each word made a new text."""
    text = "// é\n" + "".join(f"int a{i} = b + c;\n" for i in range(30_000))
    begin_s = time.process_time()
    tokens(text)
    tokens_s = time.process_time() - begin_s
    assert in_ascii(text) == text
    assert time.process_time() - begin_s - tokens_s < 5 * tokens_s
