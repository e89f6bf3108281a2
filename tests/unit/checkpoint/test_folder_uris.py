"""Which places a path or a URI names, and which it does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clonos_py.checkpoint.folder import LocalFolder
from clonos_py.checkpoint.folders import open_folder
from clonos_py.checkpoint.object_folder import ObjectFolder
from clonos_py.model.errors import CheckpointError, ClonosError, SettingError


def test_a_path_and_a_file_uri_are_local(tmp_path: Path) -> None:
    for uri in (str(tmp_path / "a b"), f"file://{tmp_path}/a%20b", f"FILE://{tmp_path}/a b"):
        folder = open_folder(uri, "job")
        assert isinstance(folder, LocalFolder)
        assert folder.root == str(tmp_path / "a b" / "job")


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/path",
        "s3a://bucket",
        "gs://bucket/path/",
        "az://container/path",
        "abfs://c@account.dfs.core.windows.net/path",
    ],
)
def test_a_uri_of_an_object_store_connects_to_nothing(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    folder = open_folder(uri, "job")
    assert isinstance(folder, ObjectFolder)
    assert folder.root == f"{uri.rstrip('/')}/job"
    assert not folder.requests


REFUSED = {
    "nowhere://x": "'nowhere://x' is no checkpoint folder: give a path",
    "hdfs://name-node/path": "that of a mounted file system, or a URI of an object store: s3://bucket/path",
    "memory:///": "no checkpoint folder",
    "s3://": "'s3://' is no checkpoint folder .*give a URI such as s3://bucket/path",
    "s3://bucket/a//b": "no checkpoint folder .*empty path segment",
    "s3://bucket/path?endpoint_override=host": "s3://bucket/path is given with more than bucket .*AWS_ENDPOINT_URL",
    "s3://key:secret@bucket/path": "s3://bucket/path is given with more than bucket and path: give credentials",
    "abfs://container:secret@account/path": "abfs://account/path is given with more",
}


@pytest.mark.parametrize("uri", REFUSED)
def test_another_uri_is_refused(uri: str) -> None:
    with pytest.raises(CheckpointError, match=REFUSED[uri]) as raised:
        open_folder(uri)
    assert "secret" not in str(raised.value)


def test_without_the_library_only_object_stores_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("checkpoint.object_folder", "object_store.client", "object_store.problems"):
        monkeypatch.delitem(sys.modules, f"clonos_py.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    assert isinstance(open_folder(str(tmp_path)), LocalFolder)
    with pytest.raises(SettingError, match=r"need obstore: pip install 'clonos-py\[object-store\]'"):
        open_folder("s3://bucket/path")


def test_a_uri_is_never_a_local_path() -> None:
    with pytest.raises(ClonosError):
        open_folder("htp://x/y")
