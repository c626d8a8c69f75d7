"""``ringlet_predict`` and ``ringlet_predict_file`` for DuckDB: vectorised functions over Arrow arrays.

DuckDB calls them with up to 2,048 rows at a time, on several threads if a table has several row groups; each call is
cut into batches that the predictor's own threads compute. Files are read, and bytes are copied from DuckDB, one by one
when they are decoded. DuckDB forgets functions when a connection ends, so they are registered again on each.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, final

from ringlet.database.drivers import Closing, driver
from ringlet.database.models import PredictorCache, fingerprint, stored_artifact
from ringlet.database.names import Reference
from ringlet.database.rows import AllowedDirectory, Row, arrow_items, file_item, predict_rows
from ringlet.database.statements import Statement, result_columns, select_models
from ringlet.errors import UnknownNameError, UsageError
from ringlet.inference.artifact import Artifact
from ringlet.inference.predictor import Named, Predictor

MODELS = "ringlet_models"
"""The table of stored models."""
PREDICT, PREDICT_FILE = "ringlet_predict", "ringlet_predict_file"
_ARTIFACT_COLUMNS = "sha256, kind, network, weights"


@final
class ArrowFunctions(Closing):
    """The functions on one connection, with the models that they have loaded.

    ``models`` are named artifacts beside those that the database stores. ``on_rows`` is told the results of each call,
    by one thread at a time.
    """

    def __init__(
        self,
        connection: Any,
        *,
        threads: int,
        batch_size: int,
        allow_directory: str | None = None,
        models: Mapping[str, Artifact] | None = None,
        on_rows: Callable[[list[Row | None]], None] = lambda _: None,
    ) -> None:
        self.cache = PredictorCache(threads=threads, batch_size=batch_size)
        self._directory = AllowedDirectory(allow_directory) if allow_directory is not None else None
        self._given = {name: (fingerprint(artifact), artifact) for name, artifact in (models or {}).items()}
        self._connection, self._on_rows = connection, on_rows
        self._lookups = connection.cursor()  # a query must not use the connection that is running it
        self._lock = Lock()
        arrow = driver("pyarrow")
        kinds = {
            "integer": arrow.int32(),
            "text": arrow.string(),
            "double precision": arrow.float64(),
            "blob": arrow.binary(),
        }
        self._type = arrow.struct([(name, kinds[kind]) for name, kind in result_columns("blob").items()])
        self._array = arrow.array
        self._register()
        atexit.register(self.close)  # DuckDB complains about functions that outlive the interpreter

    def close(self) -> None:
        """Take the functions away and free the models."""
        atexit.unregister(self.close)
        errors = driver("duckdb").Error
        for name in (PREDICT, PREDICT_FILE):
            with suppress(errors):  # the connection may be closed
                self._connection.remove_function(name)
        with suppress(errors):
            self._lookups.close()
        self.cache.close()

    def _register(self) -> None:
        duckdb = driver("duckdb")
        returns = duckdb.struct_type({name: kind.upper() for name, kind in result_columns("blob").items()})
        for name, function, picture in (
            (PREDICT, self._predict, "BLOB"),
            (PREDICT_FILE, self._predict_file, "VARCHAR"),
        ):
            self._connection.create_function(
                name, function, ["VARCHAR", picture], returns, type="arrow", null_handling="special"
            )

    def _predict(self, models: Any, images: Any) -> Any:
        return self._results(models.to_pylist(), arrow_items(images))

    def _predict_file(self, models: Any, paths: Any) -> Any:
        if self._directory is None:
            raise UsageError("no directory is allowed: call ringlet.database.register(…, allow_directory=DIR)")
        directory = self._directory
        return self._results(models.to_pylist(), [file_item(path, directory) for path in paths.to_pylist()])

    def _results(self, models: Sequence[str | None], items: Sequence[Named | None]) -> Any:
        """One row for every item, each by its model."""
        rows: list[Row | None] = [None] * len(items)
        for model in _distinct(models):
            places = [place for place, name in enumerate(models) if name == model]
            found = predict_rows(self._predictor(model), [items[place] for place in places])
            for place, row in zip(places, found, strict=True):
                rows[place] = row
        with self._lock:
            self._on_rows(rows)
        return self._array(rows, self._type)

    def _predictor(self, model: str) -> Predictor:
        """A model by its name; the table is asked each time, its bytes are fetched once."""
        if model in self._given:
            sha256, artifact = self._given[model]
            return self.cache.get(sha256, lambda: artifact)
        reference = Reference.parse(model)
        with self._lock:
            row = self._first(select_models(MODELS, "sha256", reference))
            if row is None:
                raise UnknownNameError("model", model, (name for name, *_ in self._all("select name from {}")))
            return self.cache.get(row[0], lambda: self._stored(reference, row[0]))

    def _stored(self, reference: Reference, sha256: str) -> Artifact:
        row = self._first(select_models(MODELS, _ARTIFACT_COLUMNS, reference))
        if row is None or row[0] != sha256:
            raise UsageError(f"model '{reference}' was changed at this moment: ask again")
        return stored_artifact(f"model '{reference}'", *row)

    def _first(self, statement: Statement) -> Any:
        duckdb = driver("duckdb")
        try:
            found = self._lookups.execute(statement.bound("?"), list(statement.values)).fetchall()
            return found[0] if found else None
        except duckdb.CatalogException:  # no table: nothing was ever installed
            return None

    def _all(self, text: str) -> list[Any]:
        duckdb = driver("duckdb")
        try:
            return list(self._lookups.execute(text.format(MODELS)).fetchall())
        except duckdb.CatalogException:
            return []


def _distinct(models: Iterable[str | None]) -> list[str]:
    return [model for model in dict.fromkeys(models) if model is not None]
