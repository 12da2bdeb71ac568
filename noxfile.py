"""`nox` runs the checks, `nox -s NAME` one of them, `nox -l` lists them. See CONTRIBUTING.md."""

import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False  # test with every Python that is there
nox.options.sessions = ["lint", "tests", "wheel"]


@nox.session
def lint(session: nox.Session) -> None:
    """Style; types are checked by the tests."""
    session.install("ruff>=0.17,<0.18")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """The suite, with our C++ compiled without a warning."""
    warnings_are_errors = "-Ccmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON"
    session.install(".[test]", warnings_are_errors)
    session.run("pytest", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """The sdist, a wheel from it, and the smoke test on that wheel away from the source tree."""
    smoke_test = Path("tests/test_minimal.py").resolve()
    away = Path(session.create_tmp()).resolve()
    shutil.rmtree(away / "dist", ignore_errors=True)
    session.install("build", "pytest")
    session.run("python", "-m", "build", "--outdir", str(away / "dist"))
    (built,) = (away / "dist").glob("*.whl")
    session.install("--force-reinstall", "--no-deps", str(built))
    shutil.copy(smoke_test, away)
    session.chdir(away)
    session.run("python", "-m", "pytest", "-W", "error", smoke_test.name)


@nox.session
def integration(session: nox.Session) -> None:
    """Real chats, tokenisers, torch and a server: heavy, so not among the default ones."""
    data = ("chitchat-dataset", "mistral-common", "tiktoken")
    serving = ("torch==2.13.0", "transformers>=5.25", "fastapi", "uvicorn", "openai")
    session.install(".[test]", *data, *serving)
    session.run("pytest", "tests/integration", *session.posargs)
