"""The published vectors: fixed keys, nonces and updates, and every value in between.

`python tests/integrity/vectors.py` writes them anew; a difference to what is stored is a change of the protocol.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "vectors" / "integrity"
if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parent.parent))

import numpy as np  # noqa: E402

from integrity.attacks import ATTACKS  # noqa: E402
from integrity.parties import CONSORTIUM, SERVER, Federation, Stage, conclude, federation, play_out, stage  # noqa: E402
from integrity.test_depositions import LIAR, Scene, deposed, shifted  # noqa: E402
from lrdp.integrity import client  # noqa: E402
from lrdp.integrity.depositions import Deposition, judged  # noqa: E402
from lrdp.integrity.field import MERSENNE_127  # noqa: E402
from lrdp.integrity.masks import mask  # noqa: E402
from lrdp.integrity.messages import Tags  # noqa: E402
from lrdp.integrity.papers import encode_failed  # noqa: E402
from lrdp.integrity.schemes import transcript_challenge  # noqa: E402
from lrdp.integrity.session import ProofMethod  # noqa: E402

GOOD: dict[str, dict[str, Any]] = {
    "sketch-small": {"count": 3, "size": 5},
    "sketch-two-rows": {"count": 4, "size": 1030},
    "sketch-int64": {"count": 3, "size": 6, "update_bits": 32},
    "exact-small": {"count": 3, "size": 5, "method": ProofMethod.EXACT},
}
LIE = 1234567891011
"""So much more a liar's tag is than it should be."""


class Steady:
    """Numbers that no release of numpy changes: SHAKE-256 of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.taken = seed, 0

    def bytes(self, count: int) -> bytes:
        self.taken += 1
        return hashlib.shake_256(f"{self.seed}/{self.taken}".encode()).digest(count)

    def integers(self, low: int, high: int, size: int, endpoint: bool) -> Any:
        drawn = np.frombuffer(self.bytes(8 * size), "<u8")
        return low + (drawn % (high - low + endpoint)).astype(np.int64)

    def standard_normal(self, size: int) -> Any:
        """Not normal, but that does not matter: thirty-seconds between −4 and 4."""
        return self.integers(-128, 128, size, True) / 32


def setting(world: Federation) -> dict[str, Any]:
    session = world.session
    parameters = session.parameters
    return {
        "identifier": session.identifier.hex(),
        "parameters": {
            "size": parameters.point.size,
            "fraction_bits": parameters.point.fraction_bits,
            "update_bits": parameters.point.update_bits,
            "method": parameters.method.value,
            "min_roster": parameters.min_roster,
            "pending_window": parameters.pending_window,
        },
        "server_signing_secret": SERVER.signing_secret.hex(),
        "consortium_signing_secret": CONSORTIUM.signing_secret.hex(),
        "members": {
            name: {
                "signing_secret": ready.identity.signing_secret.hex(),
                "agreement_secret": ready.identity.agreement_secret.hex(),
            }
            for name, ready in world.clients.items()
        },
        "registry_digest": session.registry.digest.hex(),
        "session_digest": session.digest.hex(),
        "model": world.idle.model.tobytes().hex(),
        "model_hash": world.idle.position.model.hex(),
        "tip": world.idle.position.tip.hex(),
    }


def participant(scene: Stage, name: str) -> dict[str, Any]:
    committed = scene.committed[name]
    header = scene.publish.header
    found = {
        "update_message": scene.wire.update(client.reveal(committed, scene.gathering.pledges)[1]).hex(),
        "update": committed.values.tolist(),
        "nonce": committed.nonce.hex(),
        "sent": committed.sent.tolist(),
        "commitment": committed.pledge.commitment.hex(),
        "pledge_signature": committed.pledge.signature.hex(),
    }
    ready = committed.begun.ready
    if ready.scheme.method is ProofMethod.SKETCH:
        drawn = transcript_challenge(header, committed.values.size)
        found["bare_tag"] = f"{drawn.tag(committed.values):032x}"
        found["mask"] = f"{mask(ready.scheme.pairwise, header.names, header.digest, MERSENNE_127):032x}"  # type: ignore[attr-defined]
    return found


def good(**options: Any) -> dict[str, Any]:
    world = federation(rng=Steady(11), **options)
    record = setting(world)
    scene = stage(world)
    played = play_out(scene)
    record["train_unsigned"] = scene.gathering.train.unsigned.hex()
    record["participants"] = {name: participant(scene, name) for name in scene.names}
    record |= {
        "train": scene.wire.train(scene.gathering.train).hex(),
        "header": scene.publish.header.encode().hex(),
        "publish": scene.wire.publish(scene.publish).hex(),
        "aggregate": scene.publish.aggregate.tobytes().hex(),
        "aggregate_hash": scene.publish.header.aggregate.hex(),
        "publish_digest": scene.publish.header.digest.hex(),
        "tags": scene.wire.tags(Tags(tags=tuple(played.tags)), scene.publish.header).hex(),
        "tag_values": {tag.name: f"{tag.value:032x}" for tag in played.tags},
        "tag_messages": {tag.name: scene.wire.tag(tag).hex() for tag in played.tags},
        "accept_messages": {accept.name: scene.wire.accept(accept).hex() for accept in played.accepts},
        "accept_signatures": {accept.name: accept.signature.hex() for accept in played.accepts},
    }
    drawn = transcript_challenge(scene.publish.header, world.session.parameters.point.size)
    record["challenge"] = {"alpha_0": f"{drawn.alphas[0]:032x}", "beta_1023": f"{drawn.betas[1023]:032x}"}
    record["receipt"] = conclude(scene, played).encode().hex()
    record["next_model"] = world.idle.model.tobytes().hex()
    record["next_model_hash"] = world.idle.position.model.hex()
    record["next_tip"] = world.idle.position.tip.hex()
    return record


# What the server shows c000 instead, by name of the attack in attacks.py that it repeats.
def bad() -> dict[str, Any]:
    world = federation(5, size=7, rng=Steady(12))
    scene = stage(world)
    played = play_out(scene)
    tags = Tags(tags=tuple(played.tags))
    altered = scene.publish.aggregate.copy()
    altered[3] += 1
    roster = scene.publish.header.roster
    published = {
        "alter_one_coordinate_by_one_quantum": scene.resign(altered),
        "alter_the_aggregate_and_not_the_header": replace(scene.publish, aggregate=altered),
        "announce_another_next_model": scene.resign(next_model=bytes(32)),
        "one_beyond_the_range": scene.resign(altered * 0 + 5 * scene.point.most + 1),
        "widen_the_aggregate": scene.resign(altered.astype("<i8")),
        "name_somebody_twice": scene.resign(roster=(roster[0], *roster)),
        "below_the_quorum": scene.resign(roster=roster[:2]),
        "omit_an_update_and_claim_a_dropout": scene.resign(roster=roster[1:]),
        "publish_for_another_session": scene.resign(session=bytes(32)),
        "roll_the_history_back": scene.resign(previous=bytes(32)),
        "start_from_another_model": scene.resign(model=bytes(32)),
        "swap_a_commitment": scene.resign(roster=(replace(roster[0], commitment=bytes(32)), *roster[1:])),
        "forge_an_absent_client": scene.resign(roster=(*roster[:4], replace(roster[4], commitment=bytes(32)))),
    }
    shown: dict[str, Any] = {}
    for name, publish in published.items():
        answered = [client.sign_tag(world.clients[tag.name].identity, publish.header, tag.value) for tag in played.tags]
        shown[name] = _shown(scene, publish, Tags(tags=tuple(answered)), ATTACKS[name].expected.name)
    shown["nothing"] = _shown(scene, scene.publish, tags, "VERIFIED")
    shown["sybil"] = {**shown["nothing"], **_sybil(shown["nothing"]), "verdict": ATTACKS["sybil"].expected.name}
    shown["drop_a_tag"] = _shown(scene, scene.publish, Tags(tags=tags.tags[1:]), "TAGS_INCOMPLETE")
    wrong = replace(tags.tags[1], value=1)
    altered_tags = Tags(tags=(tags.tags[0], wrong, *tags.tags[2:]))
    shown["alter_a_tag"] = _shown(scene, scene.publish, altered_tags, "TAG_SIG")
    own = scene.committed["c000"]
    return {
        **setting(world),
        "victim": "c000",
        "update": own.values.tolist(),
        "nonce": own.nonce.hex(),
        "commitment": own.pledge.commitment.hex(),
        "train": scene.wire.train(scene.gathering.train).hex(),
        "cases": shown,
    }


def _sybil(honest: dict[str, str]) -> dict[str, str]:
    """The last of the roster, c004, becomes the registry's sixth member, which it has not."""
    publish = bytes.fromhex(honest["publish"])
    return {"publish": (publish[:-98] + (5).to_bytes(2, "little") + publish[-96:]).hex()}


def _shown(scene: Stage, publish: Any, tags: Tags, verdict: str) -> dict[str, str]:
    return {
        "publish": scene.wire.publish(publish).hex(),
        "aggregate": publish.aggregate.tobytes().hex(),
        "tags": scene.wire.tags(tags, scene.publish.header).hex(),
        "verdict": verdict,
    }


def disputed() -> dict[str, Any]:
    """A round in which one signs a wrong tag; and its case, by what the liar says when everybody is asked."""
    scene = stage(federation(4, size=6, rng=Steady(13)))
    played = play_out(scene, lies={LIAR: lambda tagged, tag: shifted(tagged, tag, by=LIE)})
    failed = Scene(scene, played, scene.publish)
    words, header = failed.honest(), scene.publish.header
    true = words[LIAR]
    stuck = deposed(LIAR, header, (true.bare.value + LIE) % MERSENNE_127.prime, list(true.masks))
    said = {
        "the_truth": words,
        "the_same_lie": {**words, LIAR: stuck},
        "nothing": {name: word for name, word in words.items() if name != LIAR},
    }
    return {
        **setting(scene.federation),
        "liar": LIAR,
        "participants": {name: participant(scene, name) for name in scene.names},
        "aggregate": scene.publish.aggregate.tobytes().hex(),
        "header": header.encode().hex(),
        "server_signature": scene.publish.signature.hex(),
        "tags": {tag.name: tag.encode().hex() for tag in failed.played.tags},
        "cases": {what: _case(failed, spoken) for what, spoken in said.items()},
    }


def _case(failed: Scene, words: dict[str, Deposition]) -> dict[str, Any]:
    made = failed.case(words)
    spoken = {
        name: {
            "bare_tag": f"{word.bare.value:032x}",
            "masks": [f"{mask:032x}" for mask in word.masks],
            "deposition": word.encode().hex(),
        }
        for name, word in words.items()
    }
    opened = None if made.opened is None else made.opened.pledge.name
    return {"said": spoken, "opened": opened, "case": encode_failed(made).hex(), "judgement": judged(made).line}


def build() -> dict[str, Any]:
    return {**{name: good(**options) for name, options in GOOD.items()}, "bad": bad(), "disputed": disputed()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for vector_name, content in build().items():
        (FOLDER / f"{vector_name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
