"""The page shows everything that a run has left, escaped, and nothing comes from elsewhere."""

import json
import re
from html.parser import HTMLParser

import pytest

from turbo_physai.report.html import as_html, comparison_in
from turbo_physai.report.merge import merge

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Checks that every tag is closed where it should be, and collects text, ids and links."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.ids, self.links, self.tags = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src"):
                self.links.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def two_ranks(project):
    """Reports of two ranks, of which one cannot apply a Group; a name in them looks like HTML."""
    project.write({"model.py": "def f(): ...\ndef g(): ...\n", "fast.py": "def f(): ...\n"})
    project.declare(
        "group('good', replace('model.f', 'fast.f')), group('bad', replace('model.g', 'fast.h')),"
        "group('idle', replace('model.h', 'fast.f'))",
        idle="enabled: false",
    )
    (project.path / "optimization.yaml").rename(project.path / "<script>&.yaml")
    for rank in "01":
        project.script(
            """
            report = apply(optimization_config_path="<script>&.yaml")
            if os.environ["RANK"] == "0":
                import model
            """,
            RANK=rank,
            WORLD_SIZE="2",
            TURBO_PHYSAI_RUN_ID="example",
        )
    return project.path / "reports"


def test_it_is_one_whole_page_that_needs_nothing_else(two_ranks):
    page = Page(as_html(merge(two_ranks)))
    assert len(page.ids) == len(set(page.ids))
    assert page.links == [f"#{id_}" for id_ in page.ids]
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert ("html", {"lang": "en"}) in page.tags


def test_what_a_run_has_named_is_escaped(two_ranks):
    text = as_html(merge(two_ranks))
    assert "<script" not in text
    assert "/&lt;script&gt;&amp;.yaml" in text


def test_groups_ranks_checks_and_members_are_there(two_ranks):
    shown = " ".join(" ".join(Page(as_html(merge(two_ranks))).text).split())
    assert "run example: 2 ranks" in shown
    for expected in ("good differs", "rank 0", "rank 1", "applied", "blocked", "skipped"):
        assert expected in shown
    assert re.search(r"replacement fail fast\.h", shown)
    assert "the module has no 'h'" in shown
    assert "fast.f" in shown
    assert "model.f" in shown


def test_tables_can_be_scrolled_and_read_without_a_mouse_or_colours(two_ranks):
    page = Page(as_html(merge(two_ranks)))
    regions = [attributes for _, attributes in page.tags if attributes.get("role") == "region"]
    assert regions
    assert all(each["tabindex"] == "0" and each["aria-label"] for each in regions)
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert all(each["role"] == "img" and each["aria-label"] for each in pictures)


def test_more_ranks_than_fit_a_table_are_named_by_outcome(two_ranks, monkeypatch):
    monkeypatch.setattr("turbo_physai.report.html._MOST_COLUMNS", 1)
    shown = " ".join(" ".join(Page(as_html(merge(two_ranks))).text).split())
    assert "applied rank 0" in shown
    assert "not_started rank 1" in shown


SIDE = {"median_seconds": 2.0, "p10_seconds": 1.9, "p90_seconds": 2.1}


def test_a_comparison_beside_the_reports_is_shown(two_ranks):
    assert comparison_in(two_ranks) is None
    (two_ranks / "comparison.json").write_text("{")
    assert comparison_in(two_ranks) is None
    sides = [{"name": "with", **SIDE}, {"name": "without", **SIDE, "median_seconds": 3.0}]
    (two_ranks / "comparison.json").write_text(json.dumps({"sides": sides}))
    page = Page(as_html(merge(two_ranks), comparison_in(two_ranks)))
    shown = " ".join(" ".join(page.text).split())
    assert "without 3 1.9 2.1" in shown
    assert "With and without" in shown


def test_the_command_writes_the_page_and_ends_as_show_does(two_ranks, project):
    done = project.python("-m", "turbo_physai", "report", "html", "reports", code=1)
    assert done.stdout == "report.html\n"
    Page((project.path / "report.html").read_text())
    assert (
        "found no report"
        in project.python("-m", "turbo_physai", "report", "html", "absent", code=2).stderr
    )
