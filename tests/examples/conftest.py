"""Scripts that run in the process of the tests."""

import pytest


@pytest.fixture
def in_this_process(capsys):
    """Run a script's ``main`` with arguments; return (exit code, stdout, stderr)."""

    def run(main, *arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stopped:
            code = stopped.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
