"""Pages: texts stay texts, pictures are of the page, tables scroll in their own box."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

from bayesdrop.page import Picture, bullets, note, page, pictures, safe, shortened, shortened_apart, table
from bayesdrop.plots import inline_svg, new_figure


def drawn(label: str = "x") -> str:
    figure = new_figure(4, 3)
    ax = figure.subplots()
    ax.plot(np.linspace(0, 1, 50), np.linspace(0, 1, 50) ** 2, label="line")
    ax.set_xlabel(label, parse_math=False)
    return inline_svg(figure)


def test_a_picture_is_an_element_that_fetches_and_runs_nothing() -> None:
    svg = drawn()
    root = ElementTree.fromstring(svg)
    assert root.tag == "svg"
    assert set(root.attrib) == {"viewBox", "role", "stroke-linejoin", "stroke-linecap"}
    # A page whose policy forbids inline styles shows it all the same.
    assert not list(root.iter("style"))
    assert not any("style" in element.attrib for element in root.iter())
    references = re.findall(r'href="([^"]*)"|url\(([^)]*)\)', svg)
    assert references
    assert all("".join(one).startswith("#") for one in references)
    assert not re.search(r"https?:|<script|<style>[^<]*@import|<metadata|\son\w+=", svg)


def test_a_picture_has_the_colours_of_the_page_and_no_background() -> None:
    svg = drawn()
    assert "#000000" not in svg
    assert "currentColor" in svg
    assert "#ffffff" not in svg


def test_texts_of_a_picture_are_texts_whatever_they_are() -> None:
    for label in ("</svg><script>x</script>", "$\\frac$ & 日本 🦄", "0.123456789"):
        root = ElementTree.fromstring(drawn(label))
        # Digits of a text are not those of a shape: none of them is cut.
        assert label in ["".join(one.itertext()) for one in root.iter("text")]
        assert not list(root.iter("script"))


def test_the_same_picture_is_the_same_text() -> None:
    assert drawn() == drawn()


def test_ids_of_two_pictures_do_not_meet_unless_they_mean_the_same() -> None:
    shapes: dict[str, str] = {}
    for size in (50, 70):
        figure = new_figure(4, 3)
        ax = figure.subplots()
        ax.plot(np.arange(size), np.arange(size), "o")
        ax.set_xlim(0, size / 2)
        root = ElementTree.fromstring(inline_svg(figure))
        for element in root.iter():
            if "id" in element.attrib:
                text = ElementTree.tostring(element, encoding="unicode").strip()
                assert shapes.setdefault(element.attrib["id"], text) == text


def test_names_of_a_table_are_no_mathematics() -> None:
    picture = Picture("<b>$\\frac$")
    picture.ax.plot([0, 1e6], [0, 1], label="$\\bad{")
    picture.ax.set_xlabel("$x$" + "y" * 200)
    picture.ax.set_yticks([0, 1], ["$a", "b$"])
    html = picture.html()
    assert html.startswith("<figure><figcaption>&lt;b&gt;$\\frac$</figcaption><svg ")
    root = ElementTree.fromstring(html)
    texts = ["".join(one.itertext()) for one in root.iter("text")]
    assert {"$\\bad{", "$a", "b$", "800,000"} <= set(texts)
    assert [text for text in texts if text.startswith("$x$")] == [shortened("$x$" + "y" * 200)]


def test_a_page_escapes_and_allows_no_script() -> None:
    evil = "<script>alert(1)</script>\x1b[31m"
    html = page(
        evil, [note(evil), bullets([evil]), table((evil, "n"), [(evil, "1")], numbers=(1,), strong=0)]
    )
    assert "<script" not in html
    assert "\x1b" not in html
    assert html.count("&lt;script&gt;") == 6
    assert "default-src 'none'" in html
    assert pictures([]) == ""
    shaded = table(("a",), [("x",), ("y",)], shades={(1, 0): 0.5})
    assert shaded.count("rgba(var(--shade), 0.28)") == 1


def test_no_line_ends_before_a_percent_sign() -> None:
    assert safe("95.8 % of 20 %, 100%") == "95.8\u00a0% of 20\u00a0%, 100%"


def test_a_hyphen_before_a_number_is_a_minus_and_no_other_is() -> None:
    assert safe("-1.5 to -.5") == "\u22121.5 to \u2212.5"
    for text in ("2024-03-31", "x-1", "a - 1", "--seed", "1e-05", "--1"):
        assert safe(text) == text


def test_names_that_differ_are_shortened_to_texts_that_differ() -> None:
    names = [f"{'the same beginning of all ' * 4}{place}{' and an end' * 9}" for place in range(30)]
    for most in (12, 30, 60):
        short = shortened_apart(names, most)
        assert len(set(short)) == 30
        assert max(map(len, short)) <= most
    assert shortened_apart(["a", "b", "a"], 10) == ["a", "b", "a"]


def test_a_row_that_is_wider_than_a_phone_is_a_card_with_labels() -> None:
    wide = table(("name", "cost", '"of" that'), [("x" * 30, "1", "y" * 30)])
    assert 'class="wide cards"' in wide
    assert 'data-label="&quot;of&quot; that">yyy' in wide
    assert "data-label" not in table(("name", "cost"), [("x", "1")])
    assert "cards" not in table(("name", *"abcdefghi"), [("x" * 30, *range(9))], shades={(0, 1): 0.5})
