"""Which tests and cases of tables a quick run and ``pytest --all`` take: ``tests/tiers.py``."""

import pytest

from tests.tiers import thin_out


class Item:
    """The parts of a pytest item that are looked at."""

    def __init__(self, module, function, case=None, mark="full", alone=False, **given):
        self.path, self.location = module, (module, 0, function)
        self.name = function if case is None else f"{function}[{case}]"
        self.mark = mark
        if case is not None:
            marks = [getattr(pytest.mark, mark).mark] if alone else []
            self.callspec = type("Callspec", (), {"params": given, "marks": marks})

    def get_closest_marker(self, name):
        return name == self.mark


def functions(items, run):
    return [item.name.partition("[")[0] for item in thin_out(items, run)]


@pytest.mark.parametrize(
    ("mark", "run", "many", "few"), [("full", "quick", 10, 0), ("slow", "full", 5, 1)]
)
def test_the_run_below_takes_some_cases_of_tables_and_no_single_test(mark, run, many, few):
    items = [Item("a.py", "many", i, mark) for i in range(60)]
    items += [Item("a.py", "few", i, mark) for i in range(2)] + [Item("a.py", "one", mark=mark)]
    taken = functions(items, run)
    assert (taken.count("many"), taken.count("few"), taken.count("one")) == (many, few, 0)


@pytest.mark.parametrize("run", ["quick", "full", "slow"])
def test_runs_take_all_of_their_own_tests_in_their_order(run):
    marks = {"quick": [None], "full": [None, "full"], "slow": [None, "full", "slow"]}
    items = [Item("a.py", "test", i, mark) for i in range(20) for mark in marks[run]]
    assert thin_out(items, run) == items


def test_a_quick_run_takes_nothing_of_a_nightly_one():
    assert thin_out([Item("a.py", "test", i, "slow") for i in range(60)], "quick") == []


def test_a_case_that_is_marked_by_itself_is_in_no_run_below():
    items = [Item("a.py", "test", i, "slow", alone=True) for i in range(60)]
    assert thin_out(items, "full") == []
    assert thin_out(items, "slow") == items


def test_tests_of_a_module_take_the_same_rows_and_modules_others():
    rows = [f"row{i}" for i in range(24)]
    items = [
        Item(module, function, row, row=row)
        for module in [f"{letter}.py" for letter in "abcdefghijklmnopqrst"]
        for row in rows
        for function in ("one", "two")
    ]
    taken = {}
    for item in thin_out(items, "quick"):
        function, _, row = item.name.rstrip("]").partition("[")
        taken.setdefault((item.path, function), set()).add(row)
    assert taken["a.py", "one"] == taken["a.py", "two"]
    assert len(taken["a.py", "one"]) == 4
    assert set.union(*taken.values()) == set(rows)


def test_a_table_whose_rows_are_all_left_out_keeps_its_first():
    rows = [f"row{i}" for i in range(20)]
    items = [Item("a.py", "wide", row, row=row) for row in rows]
    wide = {item.name for item in thin_out(items, "quick")}
    left = [row for row in rows if f"wide[{row}]" not in wide]
    items += [Item("a.py", "narrow", row, row=row) for row in left[:8]]
    narrow = [item.name for item in thin_out(items, "quick") if item.name.startswith("narrow")]
    assert narrow == [f"narrow[{left[0]}]"]
