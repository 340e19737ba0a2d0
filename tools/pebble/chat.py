"""ChatML framing shared by the corpus generators.

Promises: every turn is closed, and the text of a turn is kept as given.
"""


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def exchange(question: str, answer: str) -> str:
    """One question of the user and its answer."""
    return turn("user", question) + turn("assistant", answer)


def conversation(pairs: list[tuple[str, str]]) -> str:
    """Several questions and answers, in order."""
    return "".join(exchange(question, answer) for question, answer in pairs)
