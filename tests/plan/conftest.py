import pytest

from tests.spec.example import Folder


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Folder:
    return Folder(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def folder_factory(tmp_path_factory) -> Folder:
    """As `folder`, for tests that are run on many examples."""
    with pytest.MonkeyPatch.context() as patch:
        yield Folder(tmp_path_factory.mktemp("many"), patch)
