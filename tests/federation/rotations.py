"""The office of the consortium in tests: it signs the next registry, and hospitals join with folders of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lrdp.accounting import Training
from lrdp.federation import Node
from lrdp.federation.local.consortium import enrol, pinned
from lrdp.integrity import Identity, Registry, RegistryShelf, keys, new_identity
from lrdp.integrity import registry as registries
from lrdp.ledger import FIXED_SIZE, Holder, Scheme, draft

from .worlds import TRAINING, World


def office(world: World) -> Identity:
    return keys.load_identity(world.consortium.office_key)


def shelf(world: World) -> RegistryShelf:
    return RegistryShelf(world.consortium.server_folder)


def signed(
    world: World,
    current: Registry,
    *,
    without: Iterable[str] = (),
    having: Mapping[str, Identity] | None = None,
    by: Identity | None = None,
    first_round: int = 0,
) -> Registry:
    """The registry after ``current``, signed by the office or by somebody else."""
    left = set(without)
    members = {name: member for name, member in current.by_name.items() if name not in left}
    members |= {name: identity.member for name, identity in (having or {}).items()}
    following = registries.next_registry(current, members.values(), first_round)
    return registries.sign_registry(following, by or office(world))


def rotate(world: World, **changes: object) -> Registry:
    """Hand the server the next registry, as `lrdp registry rotate` does."""
    current = shelf(world).newest(world.consortium.registry())
    following = signed(world, current, **changes)  # type: ignore[arg-type]
    shelf(world).put(following)
    return following


def newcomer(
    world: World,
    number: int,
    identity: Identity,
    pin: Registry,
    scheme: Scheme = Scheme.SKETCH,
    training: Training = TRAINING,
    task: str = "",
) -> str:
    """A hospital that comes later: its policy pins ``pin``, and its node is there from now on."""
    name, app = f"hospital-{number}", world.grid.nodes[1].app
    holder = Holder(client=name, unit="record", max_rows_per_unit=1)
    home = world.consortium.client(name)
    drafted = draft(holder, training, pinned(world.consortium, pin, 3, scheme), FIXED_SIZE)
    enrol(home, replace(drafted, task=task))
    keys.save_identity(identity, home.identity_file)
    world.grid.nodes[1 + number] = Node(app, {"partition-id": number})  # type: ignore[index]
    world.names.append(name)
    return name


def replace_key(world: World, name: str, fresh: Identity | None = None) -> Identity:
    """The hospital takes another identity, and what it had is gone; if it was lost, it makes the other one now."""
    taken, path = fresh or new_identity(name), world.consortium.client(name).identity_file
    path.unlink()
    keys.save_identity(taken, path)
    return taken
