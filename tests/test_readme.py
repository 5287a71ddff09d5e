"""The front door tells the truth: its Python runs, its commands answer what it says."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def commands():
    return [shlex.split(line.removeprefix("$ lrdp ")) for line in README.splitlines() if line.startswith("$ lrdp ")]


def lrdp(*words):
    return subprocess.run([sys.executable, "-m", "lrdp", *words], capture_output=True, text=True, check=True).stdout


def test_the_python_example_runs_and_says_what_its_comment_says(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out == "False\n"


def test_the_first_command_answers_what_is_printed_below_it():
    printed = re.search(r'"epsilon": (5\.\d+)…', README)
    assert printed is not None
    answer = json.loads(lrdp(*commands()[0]))
    assert str(answer["epsilon"]).startswith(printed[1])


def test_the_rows_of_the_plan_are_those_of_its_command(tmp_path):
    (plan,) = [words for words in commands() if words[0] == "plan"]
    plan[plan.index("--plot") + 1] = str(tmp_path / "plan.svg")
    plan[plan.index("--write") + 1] = str(tmp_path / "policy.toml")
    shown = re.findall(r"^│ .*\d │", README, re.MULTILINE)
    out = lrdp(*plan)
    assert len(shown) == 4
    assert all(row in out for row in shown)
