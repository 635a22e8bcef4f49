"""`${NAME}` in addresses: checked in the file, filled in from the environment, kept out of texts."""

from urllib.parse import urlsplit

import pytest
from sqlalchemy.engine import make_url

from ablate.errors import SpecError
from ablate.spec.addresses import concealed, filled_in, require_variables

STUDY = """\
study: small
workload: typed
factors: {{kl.beta: [0.5, 2]}}
designs: [one_at_a_time: kl.beta]
metrics: {{primary: {{name: eval/neg_elbo_per_token}}}}
{}
"""
SECRET = "p@ss/wörd:%41&\"'\\"


def problems(folder, text):
    with pytest.raises(SpecError) as caught:
        folder.load(STUDY.format(text))
    return [str(problem).partition(":")[2] for problem in caught.value.problems]


WRITTEN_OUT = (
    "a password stands in the file, which is copied into the records; put it into an environment variable and write "
    "${NAME} in its place"
)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:hunter2@db/ablate",
        "mysql+pymysql://${USER}:hunter${REST}@db/ablate",
        "postgresql://db/ablate?user=me&password=hunter2",
    ],
)
def test_a_password_in_the_file_is_refused_and_not_repeated(folder, address):
    (problem,) = problems(folder, f"track: {{optuna: '{address}'}}")
    assert problem == f"6:17: track.optuna: {WRITTEN_OUT}"


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://${USER}:${PASSWORD}@db/ablate",
        "postgresql://me@db/ablate",
        "${STORE}",
        "sqlite:////data/a:b@c.db",
        "http://tracking:5000/a:b@c",
    ],
)
def test_an_address_without_a_written_password_stands_as_it_is(folder, address):
    assert folder.load(STUDY.format(f"track: {{optuna: '{address}'}}")).track.optuna == address


@pytest.mark.parametrize("address", ["${}", "${A-B}", "http://${1}/", "x${"])
def test_a_dollar_brace_names_a_variable(folder, address):
    (problem,) = problems(folder, f"run: {{address: '{address}'}}")
    assert problem == (
        "6:16: run.address: got a ${ that names no variable; allowed: ${NAME}, NAME of letters, digits, _"
    )


def test_every_missing_variable_has_its_place(folder, monkeypatch):
    monkeypatch.setenv("HERE", "x")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("GONE", raising=False)
    spec = folder.load(STUDY.format("track:\n  optuna: 'postgresql://${GONE}:${HERE}@db/a'\n  mlflow: '${EMPTY}'"))
    with pytest.raises(SpecError) as caught:
        require_variables(spec)
    assert [str(problem).partition(":")[2] for problem in caught.value.problems] == [
        "7:11: track.optuna: the environment variable GONE is not set; it stands in this address",
        "8:11: track.mlflow: the environment variable EMPTY is empty; it stands in this address",
    ]


def test_a_value_before_the_at_sign_is_plain_text_and_elsewhere_it_stands_as_it_is(monkeypatch):
    monkeypatch.setenv("PASSWORD", SECRET)
    monkeypatch.setenv("HOST", "db:5433")
    url = make_url(filled_in("postgresql://me:${PASSWORD}@${HOST}/ablate"))
    assert (url.username, url.password, url.host, url.port) == ("me", SECRET, "db", 5433)
    assert urlsplit(filled_in("http://me:${PASSWORD}@${HOST}/")).hostname == "db"
    monkeypatch.setenv("STORE", "postgresql://me:p%40ss@db/ablate")
    assert make_url(filled_in("${STORE}")).password == "p@ss"
    assert filled_in("sqlite:///plain.db") == "sqlite:///plain.db"


def test_no_spelling_of_a_value_is_left_in_a_text(monkeypatch):
    monkeypatch.setenv("PASSWORD", SECRET)
    address = "postgresql://me:${PASSWORD}@db/ablate"
    text = f"{filled_in(address)} refused {SECRET}, {SECRET!r}"
    assert concealed(text, address) == f"{address} refused ${{PASSWORD}}, '${{PASSWORD}}'"
    monkeypatch.setenv("STORE", "postgresql://me:p%40ss@db/ablate")
    assert concealed("no p@ss, no p%40ss, no me:p%40ss", "${STORE}") == "no ${STORE}, no ${STORE}, no ${STORE}"
    assert concealed("nothing to hide", None) == "nothing to hide"
