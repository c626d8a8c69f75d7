"""``ringlet sql`` as a user sees it, on DuckDB; servers are in tests/database."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from ringlet.data.normalization import BYTES
from ringlet.models import builder as b
from ringlet.models.files import save_model
from ringlet.models.initializers import initial_values

duckdb = pytest.importorskip("duckdb", reason="needs DuckDB: pip install 'ringlet[database]'")
URL = "duckdb:shots.db"
QUERY = "select id, image from shots"


def save(name, spec, labels, seed=2):
    tensors = {info.name: initial_values(info, seed, "float32") for info in (*spec.parameters, *spec.state)}
    metadata = {"labels": json.dumps(labels), "normalization": json.dumps(BYTES.to_dict())}
    save_model(Path(name), spec, tensors, metadata)


@pytest.fixture
def files(own_folder):
    """Two models that are not trained, and five pictures in files and in a table."""
    x = b.relu(b.conv2d(b.image_input((3, 12, 12)), 4, kernel=3))
    network = b.build("classes", b.softmax(b.dense(b.flatten(x), 3)))
    for number in (1, 2):
        save(f"classes{number}.safetensors", network, ["cat", "dog", "cow"], number)
    Path("shots").mkdir()
    rng = np.random.default_rng(0)
    with duckdb.connect("shots.db") as connection:
        connection.execute("create table shots (id integer, image blob, path text)")
        for index in range(5):
            path = Path(f"shots/shot{index}.png")
            PIL.Image.fromarray(rng.integers(0, 256, (20 + index, 30, 3)).astype(np.uint8)).save(path)
            connection.execute("insert into shots values (?, ?, ?)", [index, path.read_bytes(), path.name])


def rows(text, file="shots.db"):
    with duckdb.connect(file) as connection:
        return connection.execute(text).fetchall()


def test_install_list_score_remove(ringlet, files):
    outcome = ringlet("sql", "install", URL, "classes1.safetensors", "--name", "cars")
    assert (outcome.code, outcome.stdout) == (0, "Installed: cars:1\n")
    outcome = ringlet("sql", "install", URL, "classes2.safetensors", "--name", "cars", "--json")
    assert json.loads(outcome.stdout)["model"] == "cars:2"
    outcome = ringlet("sql", "list", URL)
    assert ("cars:1" in outcome.stdout, "cars:2" in outcome.stdout, "classification" in outcome.stdout) == (True,) * 3
    for model, file in (("cars:1", "classes1"), ("cars", "classes2")):
        outcome = ringlet("sql", "score", URL, "--model", model, "--query", QUERY, "--into", "scores", "--replace")
        assert (outcome.code, outcome.stdout) == (0, 'Scores: "scores"\n')
        assert "5 rows predicted" in outcome.stderr
        predicted = json.loads(ringlet("predict", f"{file}.safetensors", "shots", "--json").stdout)["predictions"]
        expected = [(entry["class"], entry["label"], entry["probability"], None) for entry in predicted]
        assert rows("select class, label, probability, error from scores order by id") == expected
    assert ringlet("sql", "remove", URL, "cars").stdout == "Removed: cars:1, cars:2\n"
    assert "holds no models" in ringlet("sql", "list", URL).stderr


def test_a_listing_as_json_tells_all_and_verifies(ringlet, files):
    ringlet("sql", "install", URL, "classes1.safetensors")
    outcome = ringlet("sql", "list", URL, "--json", "--verify")
    [model] = json.loads(outcome.stdout)["models"]
    assert outcome.code == 0
    assert (model["name"], model["version"], model["labels"]) == ("classes1", 1, ["cat", "dog", "cow"])
    assert (model["problem"], model["preprocessing"]["input_shape"]) == (None, [3, 12, 12])
    rows("update ringlet_models set network = 'x'::blob")
    outcome = ringlet("sql", "list", URL, "--verify")
    assert outcome.code == 1
    assert "damaged" in outcome.stdout
    outcome = ringlet("sql", "score", URL, "--model", "classes1", "--query", QUERY, "--into", "scores")
    assert outcome.code == 1
    assert "not what was installed" in outcome.stderr


def test_bad_rows_are_counted_and_the_exit_code_says_so(ringlet, files):
    rows("insert into shots values (5, 'no image'::blob, '../outside.png'), (6, null, null)")
    arguments = ("sql", "score", URL, "--model", "classes1.safetensors", "--into", "scores")
    outcome = ringlet(*arguments, "--query", QUERY, "--json")
    document = json.loads(outcome.stdout)
    assert outcome.code == 1
    assert (document["num_rows"], document["num_errors"], document["num_nulls"]) == (7, 1, 1)
    more = ("--query", "select path, path from shots", "--allow-directory", "shots", "--replace")
    outcome = ringlet(*arguments, *more)
    assert outcome.code == 1
    assert "skipped: 1 row has a picture that cannot be read" in outcome.stderr
    assert "5 rows predicted, 1 without a picture" in outcome.stderr
    assert rows("select error from scores where path like '..%'") == [
        ("../outside.png: outside of the allowed directory",)
    ]


def test_lists_of_files_need_no_table(ringlet, files):
    Path("list.csv").write_text("path\nshot0.png\nshot1.png\n", encoding="utf-8")
    ringlet("sql", "install", "duckdb:new.db", "classes1.safetensors", "--name", "cars")
    outcome = ringlet(
        *("sql", "score", "duckdb:new.db", "--model", "cars", "--into", "scores"),
        *("--query", "select path from 'list.csv'", "--allow-directory", "shots", "--threads", "1"),
    )
    assert outcome.code == 0, outcome.stderr
    assert rows("select path from scores", "new.db") == [("shot0.png",), ("shot1.png",)]


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    "command",
    [
        ("list",),
        ("remove", "cars"),
        ("score", "--model", "cars", "--query", QUERY, "--into", "scores"),
        ("score", "--model", "classes1.safetensors", "--query", "select 1, 'x'::blob", "--into", "scores"),
    ],
)
def test_a_database_that_does_not_exist_is_refused_and_not_made(ringlet, files, command, dry_run):
    before = sorted(Path().rglob("*"))
    name, *more = command
    outcome = ringlet("sql", name, "duckdb:typo.db", *more, *(dry_run if name != "list" else ()))
    assert (outcome.code, outcome.stdout) == (1, "")
    assert "duckdb:typo.db: no such file" in outcome.stderr
    assert "ringlet sql install" in outcome.stderr
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("classes1.safetensors", "--grant", "me"), 2),
        (("none.xml",), 1),
        (("shots/shot0.png",), 2),
        (("classes1.safetensors", "--dry-run"), 0),
    ],
)
def test_an_installation_that_stores_nothing_leaves_no_file(ringlet, files, arguments, code):
    before = sorted(Path().rglob("*"))
    assert ringlet("sql", "install", "duckdb:new.db", *arguments).code == code
    assert sorted(Path().rglob("*")) == before


def test_failures_leave_a_database_as_it_was_and_nothing_beside_it(ringlet, files):
    ringlet("sql", "install", URL, "classes1.safetensors", "--name", "cars")
    before = sorted(Path().rglob("*"))
    model = ("--model", "cars", "--into", "scores")
    assert ringlet("sql", "score", URL, *model, "--query", "select id, image from nowhere").code == 1
    assert ringlet("sql", "score", URL, *model, "--query", "select cast(path as integer), image from shots").code == 1
    assert ringlet("sql", "remove", URL, "boats").code == 2
    assert sorted(Path().rglob("*")) == before
    assert rows("select table_name from duckdb_tables() order by 1") == [("ringlet_models",), ("shots",)]


def test_dry_runs_print_sql_and_change_nothing(ringlet, files):
    install = ringlet("sql", "install", "duckdb:new.db", "classes1.safetensors", "--name", "cars", "--dry-run")
    assert install.stdout.startswith("begin;\ncreate table if not exists ringlet_models")
    assert not Path("new.db").exists()
    rows(install.stdout)
    assert "cars:1" in ringlet("sql", "list", URL).stdout
    arguments = ("sql", "score", URL, "--model", "cars", "--query", QUERY, "--into", "scores", "--dry-run")
    assert "ringlet_predict('cars'" in ringlet(*arguments).stdout
    assert ringlet("sql", "remove", URL, "cars:1", "--dry-run").stdout.startswith("begin;\ndelete from ringlet_models")
    assert rows("select count(*) from ringlet_models") == [(1,)]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("install", "mysql://me:secret@host/db", "classes1.safetensors"), 2, "expected duckdb:FILE or postgresql"),
        (("install", URL, "classes1.safetensors", "--name", "a'b"), 2, "names no model"),
        (("install", URL, "none.xml"), 1, "no such file"),
        (("install", URL, "shots/shot0.png"), 2, "no model that can be used"),
        (("install", URL, "classes1.safetensors", "--grant", "me"), 2, "DuckDB has no languages"),
        (("install", URL, "classes1.safetensors", "--no-functions", "--python-path", "/x"), 2, "--no-functions leaves"),
        (("install", URL, "classes1.safetensors", "--schema", "a b"), 2, "cannot be the name of a schema"),
        (("list", "duckdb:none.db"), 1, "no such file"),
        (("remove", URL, "cars"), 2, "unknown model 'cars'"),
        (("remove", URL, "cars:x"), 2, "names no model"),
        (("score", URL, "--model", "cars", "--query", QUERY, "--into", "s"), 2, "There is no such file either"),
        (("score", URL, "--model", "classes1.safetensors", "--query", QUERY, "--into", "a;b"), 2, "name of a table"),
        (("score", URL, "--model", "classes1.safetensors", "--query", "select", "--into", "s"), 1, "Parser Error"),
        (
            ("score", URL, "--model", "classes1.safetensors", "--query", QUERY, "--into", "s", "--append", "--replace"),
            2,
            "contradict each other",
        ),
        (("score", URL, "--model", "m", "--query", QUERY), 2, "Missing option '--into'"),
    ],
)
def test_a_wrong_line_is_one_clear_message(ringlet, files, arguments, code, message):
    outcome = ringlet("sql", *arguments)
    assert (outcome.code, message in outcome.stderr) == (code, True), outcome.stderr
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr
    assert "secret" not in outcome.stderr
