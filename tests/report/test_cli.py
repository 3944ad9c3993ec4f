import os
import subprocess
import sys


def run(*args, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "dyncomp", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=240,
        env=dict(os.environ),
    )


def test_doctor():
    done = run("doctor")
    assert done.returncode == 0, done.stderr
    for name in ("python", "torch", "native runtime", "C++ compiler", "kernel cache"):
        assert name in done.stdout


def test_run_and_explain(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch\n"
        "def f(x):\n    return x.sin() + 1\n"
        "def main():\n    print('sum', float(f(torch.zeros(3)).sum()), sys.argv[1:])\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    done = run("run", str(script), "a", "-b")
    assert done.returncode == 0 and "sum 3.0 ['a', '-b']" in done.stdout, done.stderr
    told = run("explain", str(script))
    assert "graph(s)" in told.stdout and "script.py" in told.stdout, told.stderr


def test_cache():
    assert run("cache").returncode == 0
