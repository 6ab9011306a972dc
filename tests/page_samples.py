"""What the tests of pages share: a browser's view without a browser."""

from html.parser import HTMLParser


class Seen(HTMLParser):
    """What a browser makes of a page: its elements, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    def values(self, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for _, attrs in self.elements if attribute in attrs]
