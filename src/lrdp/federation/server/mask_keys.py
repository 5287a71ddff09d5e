"""The mask keys that members announced for a session of `exact` rounds, as the server passes them on."""

from __future__ import annotations

from collections.abc import Iterable

from lrdp.integrity import Session, require_own_key


class MaskKeys:
    """By name, each signed by its owner for ``session``: whoever receives them sees for itself whose they are."""

    def __init__(self, session: Session, *, needed: bool) -> None:
        self._session, self._needed, self._keys = session, needed, dict[str, bytes]()

    def put(self, name: str, key: bytes) -> None:
        """Keep a member's newest key: a member that lost its state has made another.

        Raises NotVerified for one that its peers would refuse, and the round with it; nobody could tell whose it was.
        """
        if self._needed:
            require_own_key(self._session, name, key)
            self._keys[name] = key

    def forget(self, name: str) -> None:
        """Forget its key, so that it is asked again."""
        self._keys.pop(name, None)

    def lack(self, name: str) -> bool:
        """Whether it must be asked for its key."""
        return self._needed and name not in self._keys

    def of(self, names: Iterable[str]) -> tuple[bytes, ...]:
        """Those that are known."""
        return tuple(self._keys[name] for name in names if name in self._keys)
