"""One suite over every database: models in and out, and rows scored from here."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictures import HOSTILE, SHOTS
from rowtests import columns, expected_rows

from ringlet.database import DatabaseError, Reference, connect
from ringlet.database.contract import Installation, Scoring
from ringlet.database.names import TableName
from ringlet.errors import ModelFileError, UnknownNameError, UsageError
from ringlet.inference import Artifact

pytestmark = pytest.mark.xdist_group("postgresql")


def store(database, model):
    """Install without functions: they need a server's Python and are tested apart."""
    return database.install(Installation(model, with_functions=False))


def execute(database, text, values=None):
    mark = "?" if database.shown.startswith("duckdb") else "%s"
    cursor = database.connection.cursor()
    cursor.execute(text.replace("?", mark), *([values] if values else []))
    return cursor.fetchall() if text.startswith("select") else []


def fill(database, images):
    blob = "blob" if database.shown.startswith("duckdb") else "bytea"
    execute(database, f"create table shots (id bigint, image {blob}, path text)")
    for index, image in enumerate(images):
        execute(database, "insert into shots values (?, ?, ?)", [index, image, f"shot{index}.png"])


def scoring(model, query="select id, image from shots", into="scores", **options):
    return Scoring("cars", model, query, TableName.parse(into), **{"threads": 2, "batch_size": 4, **options})


def scores(database, table="scores"):
    return execute(database, f'select "id", {columns()} from "{table}" order by 1')


def test_models_get_increasing_versions_and_are_listed_with_all_that_is_known(url, new_model):
    with connect(url) as database:
        assert database.models() == []
        first = store(database, new_model("cars", "classes.xml"))
        second = store(database, new_model("cars", "other.xml"))
        other = store(database, new_model("masks", "kinds.onnx"))
        assert [str(found.reference) for found in (first, second, other)] == ["cars:1", "cars:2", "masks:1"]
    with connect(url, access="read") as database:
        entries = database.models()
    assert [str(entry.reference) for entry in entries] == ["cars:1", "cars:2", "masks:1"]
    assert entries[0].sha256 == new_model("cars", "classes.xml").sha256
    assert entries[0].description == new_model("cars", "classes.xml").description
    assert [entry.kind for entry in entries] == ["openvino", "openvino", "onnx"]
    assert all(entry.num_bytes > 0 and entry.created.tzinfo is not None for entry in entries)


def test_the_same_bytes_are_stored_once_in_a_row(url, new_model):
    with connect(url) as database:
        store(database, new_model("cars", "classes.xml"))
        again = store(database, new_model("cars", "classes.xml"))
        assert (str(again.reference), again.is_new) == ("cars:1", False)
        store(database, new_model("cars", "other.xml"))
        assert str(store(database, new_model("cars", "classes.xml")).reference) == "cars:3"


def test_a_bare_name_is_the_newest_version(url, new_model):
    older, newer = new_model("cars", "classes.xml"), new_model("cars", "other.xml")
    with connect(url) as database:
        store(database, older)
        store(database, newer)
        assert database.load(Reference("cars")) == newer.artifact
        assert database.load(Reference("cars", 1)) == older.artifact
        assert database.load(Reference("cars", 2)) == newer.artifact
        for reference in (Reference("cars", 3), Reference("car")):
            with pytest.raises(UnknownNameError, match="Did you mean 'cars'"):
                database.load(reference)


def test_versions_are_removed_one_by_one_or_all_at_once(url, new_model):
    with connect(url) as database:
        with pytest.raises(UnknownNameError):
            database.remove(Reference("cars"))
        for file in ("classes.xml", "other.xml", "classes.xml"):
            store(database, new_model("cars", file))
        assert [str(found) for found in database.remove(Reference("cars", 2))] == ["cars:2"]
        assert [str(entry.reference) for entry in database.models()] == ["cars:1", "cars:3"]
        assert [str(found) for found in database.remove(Reference("cars"))] == ["cars:1", "cars:3"]
        assert database.models() == []


def test_a_stored_model_that_was_changed_is_refused(url, new_model):
    with connect(url) as database:
        store(database, new_model("cars", "classes.xml"))
        table = "ringlet_models" if url.startswith("duckdb") else "ringlet.models"
        execute(database, f"update {table} set weights = ?", [b"something else"])
        with pytest.raises(ModelFileError, match="model 'cars' is not what was installed"):
            database.load(Reference("cars"))


def test_the_table_of_models_refuses_other_names_whoever_writes_them(url, new_model):
    with connect(url) as database:
        store(database, new_model("cars", "classes.xml"))
        table = "ringlet_models" if url.startswith("duckdb") else "ringlet.models"
        with pytest.raises(Exception, match=r"(?i)check"):
            execute(database, f"update {table} set name = ?", ["x'; drop table shots"])


@pytest.mark.parametrize("file", ["classes.xml", "masks.xml", "kinds.onnx"])
def test_scores_equal_those_of_predict_exactly(url, models, new_model, file):
    with connect(url) as database:
        fill(database, SHOTS)
        outcome = database.score(scoring(new_model("cars", file).artifact))
        found = scores(database)
    assert (outcome.num_rows, outcome.num_errors, outcome.num_nulls) == (len(SHOTS), 0, 0)
    assert [row[0] for row in found] == list(range(len(SHOTS)))
    assert [row[1:] for row in found] == expected_rows(models / file, SHOTS)


def test_hostile_and_null_rows_are_counted_and_harm_nobody(url, models, new_model):
    with connect(url) as database:
        fill(database, [SHOTS[0], *HOSTILE.values(), None, SHOTS[1]])
        outcome = database.score(scoring(new_model("cars", "classes.xml").artifact))
        found = scores(database)
    assert (outcome.num_rows, outcome.num_errors, outcome.num_nulls) == (3 + len(HOSTILE), len(HOSTILE), 1)
    assert [row[1:] for row in (found[0], found[-1])] == expected_rows(models / "classes.xml", SHOTS[:2])
    assert all(reason in row[-1] for reason, row in zip(HOSTILE, found[1 : 1 + len(HOSTILE)], strict=True))
    assert set(found[-2][1:]) == {None}


def test_paths_are_read_below_the_allowed_directory_only(url, models, new_model, own_folder):
    (own_folder / "shots").mkdir()
    for index in (0, 2):
        Path(f"shots/shot{index}.png").write_bytes(SHOTS[index])
    Path("shot1.png").write_bytes(SHOTS[1])
    artifact, query = new_model("cars", "masks.xml").artifact, "select id, path from shots"
    with connect(url) as database:
        fill(database, SHOTS[:3])
        execute(database, "update shots set path = '../shot1.png' where id = 1")
        with pytest.raises(UsageError, match="--allow-directory"):
            database.score(scoring(artifact, query))
        outcome = database.score(scoring(artifact, query, allow_directory=str(own_folder / "shots")))
        found = scores(database)
        alone = scoring(artifact, "select path as id from shots;", "others", allow_directory=str(own_folder / "shots"))
        database.score(alone)
        others = scores(database, "others")
    assert outcome.num_errors == 1
    assert found[1][-1] == "../shot1.png: outside of the allowed directory"
    expected = expected_rows(models / "masks.xml", SHOTS[:3:2])
    assert [row[1:] for row in found[::2]] == expected
    assert [row[1:] for row in others[1:]] == expected


def test_a_table_that_exists_is_kept_replaced_or_added_to(url, new_model):
    artifact = new_model("cars", "classes.xml").artifact
    with connect(url) as database:
        fill(database, [*SHOTS[:4], b"bad"])
        assert database.score(scoring(artifact, append=True)).num_rows == 5
        with pytest.raises(UsageError, match="exists already: add --append or --replace"):
            database.score(scoring(artifact))
        few = "select id, image from shots where id < 2"
        assert database.score(scoring(artifact, few, append=True)).num_errors == 0
        assert len(scores(database)) == 7
        assert database.score(scoring(artifact, few, replace=True)).num_rows == 2
        assert len(scores(database)) == 2


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select id from shots", "expected a key and then a picture"),
        ("select image from shots", "expected a key and then a picture"),
        ("select id, image, path from shots", "gives 3 columns"),
        ("select image, id from shots", "expected a key and then a picture"),
        ("select path as label, image from shots", "select label as id"),
        ("select id, image\0 from shots", "zero byte"),
    ],
)
def test_queries_that_make_no_sense_are_refused(url, new_model, query, message):
    with connect(url) as database:
        fill(database, [])
        with pytest.raises(UsageError, match=message):
            database.score(scoring(new_model("cars", "classes.xml").artifact, query))


def test_a_query_that_fails_changes_nothing(url, new_model):
    artifact = new_model("cars", "classes.xml").artifact
    zero = "case when id = 2 then cast(substr(path, 1, 4) as integer) else id end"
    with connect(url) as database:
        fill(database, SHOTS[:3])
        with pytest.raises(DatabaseError):
            database.score(scoring(artifact, f"select {zero} as id, image from shots"))
        with pytest.raises(DatabaseError):
            database.score(scoring(artifact, "select id, image from nowhere"))
        assert database.score(scoring(artifact)).num_rows == 3


def test_quotes_and_comments_in_a_query_are_its_own_affair(url, new_model):
    query = 'select id as "it\'s ""one""", image from shots where path like \'%s%\' -- all of them\n;'
    with connect(url) as database:
        fill(database, SHOTS[:2])
        assert database.score(scoring(new_model("cars", "classes.xml").artifact, query)).num_rows == 2
        assert len(execute(database, 'select "it\'s ""one""" from scores')) == 2


def test_a_dry_run_changes_nothing(url, new_model):
    wanted = Installation(new_model("cars", "classes.xml"), with_functions=False)
    with connect(url, access="pretend") as database:
        assert "insert into" in database.script(database.plan_install(wanted))
    assert not url.startswith("duckdb") or not Path(url.removeprefix("duckdb:")).exists()
    with connect(url) as database:
        fill(database, SHOTS[:1])
    with connect(url, access="pretend") as database:
        text = database.script(database.plan_score(scoring(wanted.model.artifact)))
        assert text.startswith("begin;\n")
        with pytest.raises(DatabaseError):
            database.score(scoring(wanted.model.artifact))


def test_artifacts_in_files_score_too(url, models):
    with connect(url) as database:
        fill(database, SHOTS[:3])
        database.score(scoring(Artifact.find(models / "masks.safetensors").loaded()))
        assert [row[1:] for row in scores(database)] == expected_rows(models / "masks.safetensors", SHOTS[:3])
