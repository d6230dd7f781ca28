"""Which cases of tests marked ``sparse`` a plain ``pytest`` runs: ``tests/tiers.py``."""

from tests.tiers import thin_out


class Item:
    """The parts of a pytest item that are looked at."""

    def __init__(self, module, function, case=None, sparse=True, **given):
        self.path, self.location = module, (module, 0, function)
        self.name = function if case is None else f"{function}[{case}]"
        self.sparse = sparse
        if case is not None:
            self.callspec = type("Callspec", (), {"params": given})

    def get_closest_marker(self, name):
        return self.sparse if name == "sparse" else None


def names(items):
    return [(item.path, item.name) for item in thin_out(items)]


def test_one_case_in_six_is_taken_and_one_of_every_test():
    items = [Item("a.py", "many", i) for i in range(60)]
    items += [Item("a.py", "few", i) for i in range(2)] + [Item("a.py", "single")]
    taken = [name.partition("[")[0] for _, name in names(items)]
    assert (taken.count("many"), taken.count("few"), taken.count("single")) == (10, 1, 1)


def test_all_cases_of_other_tests_are_taken_in_their_order():
    items = [Item("a.py", "test", i, sparse=False) for i in range(20)]
    assert thin_out(items) == items


def test_tests_of_a_module_take_the_same_rows_and_modules_others():
    rows = [f"row{i}" for i in range(24)]
    items = [
        Item(module, function, row, row=row)
        for module in [f"{letter}.py" for letter in "abcdefghijklmnopqrst"]
        for row in rows
        for function in ("one", "two")
    ]
    taken = {}
    for module, name in names(items):
        function, _, row = name.rstrip("]").partition("[")
        taken.setdefault((module, function), set()).add(row)
    assert taken["a.py", "one"] == taken["a.py", "two"]
    assert len(taken["a.py", "one"]) == 4
    assert set.union(*taken.values()) == set(rows)


def test_a_test_whose_rows_are_all_left_out_keeps_them():
    rows = [f"row{i}" for i in range(12)]
    items = [Item("a.py", "wide", row, row=row) for row in rows]
    left = set(rows) - {name.rstrip("]").partition("[")[2] for _, name in names(items)}
    items += [Item("a.py", "narrow", row, row=row) for row in sorted(left)[:2]]
    assert len([name for _, name in names(items) if name.startswith("narrow")]) == 2
