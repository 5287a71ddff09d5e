"""The consortium's registries in a server's folder, one file each: how a running server gets the next one.

A file is written whole and never changed. Whoever can write here can stop a federation and nothing else: clients follow
the consortium's signature, and not the server.
"""

from __future__ import annotations

import json
from pathlib import Path

from lrdp import files
from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity.cards import MOST_CARD_CHARACTERS, read_registry, registry_record
from lrdp.integrity.registry import Registry, verify_successor


class RegistryShelf:
    """``registry-VERSION.json`` in a folder.

    >>> from tempfile import TemporaryDirectory
    >>> from lrdp.integrity import NO_PREVIOUS, new_identity, sign_registry
    >>> office, members = new_identity("office"), tuple(new_identity(name).member for name in "abc")
    >>> key = office.member.signing_key
    >>> three = Registry(version=1, first_round=0, previous=NO_PREVIOUS, consortium=key, members=members)
    >>> with TemporaryDirectory() as folder:
    ...     shelf = RegistryShelf(Path(folder))
    ...     shelf.put(signed := sign_registry(three, office))
    ...     shelf.newest(signed) == signed == read_registry(shelf.path(1).read_text())
    True
    >>> registry_record(signed)["digest"] == signed.digest.hex()
    True
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, version: int) -> Path:
        """Where the registry of this version lies."""
        return self._folder / f"registry-{version:05}.json"

    def put(self, registry: Registry) -> None:
        """Keep it, durable once this returns; raises InvalidInput if there is another one of its version."""
        path = self.path(registry.version)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            files.write_new(path, (json.dumps(registry_record(registry), indent=1) + "\n").encode(), files.PUBLIC)
        except FileExistsError:
            if self._read(path) != registry:
                raise InvalidInput(
                    f"{path} holds another registry of version {registry.version}: clients follow one per version, so "
                    f"nothing was written."
                ) from None
        except OSError as problem:
            raise InvalidInput(f"{path} cannot be written: {problem.strerror}.") from None

    def after(self, registry: Registry) -> Registry | None:
        """The one that replaces it, if it is here; raises NotVerified or InvalidInput if what is here does not."""
        path = self.path(registry.version + 1)
        return verify_successor(registry, self._read(path)) if path.exists() else None

    def newest(self, registry: Registry) -> Registry:
        """The last one that is reached from it."""
        while (following := self.after(registry)) is not None:
            registry = following
        return registry

    def before(self, registry: Registry) -> tuple[Registry, ...]:
        """Those that led to it, from the oldest that is here."""
        path = self.path(registry.version - 1)
        previous = self._read(path) if path.exists() else None
        if previous is None or previous.digest != registry.previous:
            return ()
        return (*self.before(previous), previous)

    def lineage(self, registry: Registry) -> tuple[Registry, ...]:
        """All that lead to it and follow it, itself among them."""
        newest = self.newest(registry)
        return (*self.before(newest), newest)

    def last(self) -> Registry:
        """The one of the highest version."""
        try:
            paths = sorted(path for path in self._folder.iterdir() if path.match("registry-*.json"))
        except OSError as problem:  # which a glob would pass over: a folder that cannot be read is not an empty one
            raise InvalidInput(f"{self._folder} cannot be read: {problem.strerror}.") from None
        if not paths:
            raise InvalidInput(
                f"{self._folder} holds no registry: it is not the folder of a server that has opened a session. If it "
                f"is that of one that will, copy the consortium's first registry there as {self.path(1).name}, and "
                f"hand over what follows it."
            )
        return self._read(paths[-1])

    def _read(self, path: Path) -> Registry:
        try:
            return read_registry(files.read(path, MOST_CARD_CHARACTERS).decode("ascii", "replace"))
        except OSError as problem:
            raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None
        except NotVerified as problem:
            raise NotVerified(f"{path} is no registry: {problem}", problem.verdict) from None
