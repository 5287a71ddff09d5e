"""The integrity protocol once more, from the specification: Python integers and lists, one function per sentence.

It shares no code with the library; signatures, X25519 and AES come from `cryptography`. Slow, short, checked by eye.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

P = 2**127 - 1


class Alarm(Exception):
    pass


def length(n: int) -> bytes:
    return bytes([n]) if n < 128 else struct.pack(">I", 2**31 + n)


def lp(*parts: bytes) -> bytes:
    return b"".join(length(len(part)) + part for part in parts)


def u64(n: int) -> bytes:
    return struct.pack("<Q", n)


def said(label: str, *fields: bytes) -> bytes:
    return lp(b"lrdp/" + label.encode(), *fields)


def sha(label: str, *fields: bytes, raw: bytes = b"") -> bytes:
    return hashlib.sha256(said(label, *fields) + raw).digest()


def ints(values: list[int], kind: str) -> bytes:
    return struct.pack(f"<{len(values)}{'i' if kind == '<i4' else 'q'}", *values)


def public(signing: bytes, agreement: bytes) -> tuple[bytes, bytes]:
    ed, x = Ed25519PrivateKey.from_private_bytes(signing), X25519PrivateKey.from_private_bytes(agreement)
    return ed.public_key().public_bytes_raw(), x.public_key().public_bytes_raw()


def sign(secret: bytes, label: str, *fields: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(secret).sign(said(label, *fields))


def signed(key: bytes, signature: bytes, label: str, *fields: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, said(label, *fields))
    except InvalidSignature:
        return False
    return True


def umax(params: dict[str, Any]) -> int:
    return 2 ** (params["update_bits"] - 1) - 1


def kind_of(params: dict[str, Any], m: int) -> str:
    return "<i4" if m * umax(params) < 2**31 else "<i8"


def params_bytes(params: dict[str, Any]) -> bytes:
    point = lp(b"fixed-point/v1", u64(params["size"]), u64(params["fraction_bits"]), u64(params["update_bits"]))
    tail = u64(params["min_roster"]), u64(params["pending_window"])
    return lp(b"parameters/v1", point, params["method"].encode(), *tail)


def member_bytes(name: str, signing: bytes, agreement: bytes) -> bytes:
    ed, x = public(signing, agreement)
    return lp(name.encode(), ed, x, sign(signing, "member/v1", name.encode(), x))


def registry_digest(consortium: bytes, members: list[bytes]) -> bytes:
    return sha("registry/v1", u64(1), u64(0), bytes(32), consortium, lp(*members))


def registry_bytes(secret: bytes, members: list[bytes]) -> bytes:
    consortium, _ = public(secret, bytes(range(32)))
    signature = sign(secret, "registry-signature/v1", registry_digest(consortium, members))
    return lp(b"registry/v1", u64(1), u64(0), bytes(32), consortium, lp(*members), signature)


def session_bytes(identifier: bytes, server: bytes, params: dict[str, Any], registry: bytes) -> bytes:
    return lp(b"SESSION/v1", identifier, server, params_bytes(params), registry)


def session_digest(identifier: bytes, server: bytes, params: dict[str, Any], registry: bytes) -> bytes:
    return sha("session/v1", identifier, server, params_bytes(params), registry)


def f32(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def model_hash(model: list[float]) -> bytes:
    return sha("model/v1", b"<f4", u64(len(model)), raw=f32(model))


def aggregate_hash(total: list[int], kind: str) -> bytes:
    return sha("aggregate/v1", kind.encode(), u64(len(total)), raw=ints(total, kind))


def next_model(model: list[float], total: list[int], m: int, params: dict[str, Any]) -> list[float]:
    moved = [old + a / (m * 2 ** params["fraction_bits"]) for old, a in zip(model, total, strict=True)]
    return list(struct.unpack(f"<{len(moved)}f", f32(moved)))


def commitment(session: bytes, rnd: int, name: str, nonce: bytes, values: list[int], kind: str) -> bytes:
    return sha(
        "commit/v1", session, u64(rnd), name.encode(), nonce, kind.encode(), u64(len(values)), raw=ints(values, kind)
    )


def update_claim(session: bytes, rnd: int, name: str, tip: bytes, model: bytes, bound: bytes) -> tuple[bytes, ...]:
    return session, u64(rnd), name.encode(), tip, model, bound


def keystream(key: bytes, n: int) -> bytes:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(n))


def expand(label: bytes, seed: bytes, n: int) -> list[int]:
    raw = keystream(sha("expand/v1", label, seed), 16 * (n + 8))
    drawn = [int.from_bytes(raw[i : i + 16], "little") % 2**127 for i in range(0, len(raw), 16)]
    return [value for value in drawn if value < P][:n]


def sketch(seed: bytes, values: list[int]) -> int:
    alpha, beta = expand(b"alpha", seed, -(-len(values) // 1024)), expand(b"beta", seed, 1024)
    return sum(alpha[i // 1024] * beta[i % 1024] * value for i, value in enumerate(values)) % P


def pair_key(secret: bytes, peer_key: bytes, session: bytes, purpose: str, names: tuple[str, str]) -> bytes:
    shared = X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(peer_key))
    info = said(purpose, *(name.encode() for name in sorted(names)))
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=session, info=info).derive(shared)


def mask(own: str, keys: dict[str, bytes], dg: bytes) -> int:
    total = 0
    for peer, key in keys.items():
        value = int.from_bytes(hmac.new(key, said("tagmask-value/v1", dg), "sha512").digest()[:32], "little")
        total += value if own < peer else -value
    return total % P


def vector_mask(own: str, keys: dict[str, bytes], train: bytes, n: int, kind: str) -> list[int]:
    width = int(kind[2])
    total = [0] * n
    for peer, key in keys.items():
        raw = keystream(sha("vectormask-stream/v1", key, sha("vectormask/v1", train)), n * width)
        for i in range(n):
            drawn = int.from_bytes(raw[i * width : (i + 1) * width], "little")
            total[i] += drawn if own < peer else -drawn
    return total


def wrap(value: int, kind: str) -> int:
    top = 2 ** (8 * int(kind[2]))
    value %= top
    return value - top if value >= top // 2 else value


def digest_of(header: bytes) -> bytes:
    return sha("publish/v1", header)


def challenge_seed(dg: bytes) -> bytes:
    return sha("challenge/v1", dg)


def link(tip: bytes, dg: bytes, model: bytes) -> bytes:
    return sha("link/v1", tip, dg, model)


def require(condition: bool, verdict: str) -> None:
    if not condition:
        raise Alarm(verdict)


def cut(data: bytes, *sizes: int) -> list[bytes]:
    """Parts of these sizes, and the rest."""
    found = []
    for size in sizes:
        require(len(data) >= size, "MALFORMED")
        found.append(data[:size])
        data = data[size:]
    return [*found, data]


def number(data: bytes) -> tuple[int, bytes]:
    """A number of seven bits a byte, least first, and the rest."""
    n = shift = 0
    while True:
        require(len(data) > 0, "MALFORMED")
        byte, data = data[0], data[1:]
        n += (byte % 128) << shift
        shift += 7
        if byte < 128:
            require((byte > 0 or shift == 7) and n < 2**64, "MALFORMED")
            return n, data


def number_bytes(n: int) -> bytes:
    return bytes([n]) if n < 128 else bytes([128 + n % 128]) + number_bytes(n // 128)


def whole(hint: bytes, own: bytes) -> bytes:
    return own if hint == own[:4] else hint


def member(me: dict[str, Any], place: bytes) -> str:
    names = sorted(me["keys"])
    require(int.from_bytes(place, "little") < len(names), "ROSTER_UNKNOWN")
    return names[int.from_bytes(place, "little")]


def place(me: dict[str, Any], name: str) -> bytes:
    return struct.pack("<H", sorted(me["keys"]).index(name))


def header_bytes(place: tuple[bytes, int, int], hashes: list[bytes], roster: list[tuple[str, bytes, bytes]]) -> bytes:
    """What dg is the hash of: names and hashes in full, unlike what travels."""
    sid, rnd, attempt = place
    packed = lp(*(lp(b"P", name.encode(), bound, sig) for name, bound, sig in roster))
    return lp(b"HEADER/v1", sid, u64(rnd), u64(attempt), *hashes, packed)


def train_bytes(sid: bytes, rnd: int, attempt: int, tip: bytes, names: list[str]) -> bytes:
    return lp(sid, u64(rnd), u64(attempt), tip, lp(*(name.encode() for name in names)))


def tag_bytes(secret: bytes, label: str, name: str, dg: bytes, value: int) -> bytes:
    """A tag, bare or not, as it is kept."""
    sixteen = value.to_bytes(16, "little")
    return lp(b"T", name.encode(), sixteen, sign(secret, label, name.encode(), dg, sixteen))


def deposition_bytes(secret: bytes, name: str, dg: bytes, bare: int, masks: list[int]) -> bytes:
    """The tag without its masks, and the mask of each peer in the roster's order."""
    sixteens = [value.to_bytes(16, "little") for value in masks]
    signature = sign(secret, "deposition/v1", name.encode(), dg, b"".join(sixteens))
    return lp(b"DEPOSITION/v1", tag_bytes(secret, "bare-tag/v1", name, dg, bare), lp(*sixteens), signature)


def case_bytes(published: list[bytes], tags: list[bytes], depositions: list[bytes], opened: list[bytes]) -> bytes:
    """Session, header and the server's signature; what everybody signed; the pledge and nonce of an opened update."""
    return lp(b"CASE/v1", *published, lp(*tags), lp(*depositions), lp(*opened))


def on_publish(me: dict[str, Any], publish: bytes, body: bytes) -> bytes:
    """All checks on PUBLISH, in the specification's order; returns dg."""
    params, keys, session = me["params"], me["keys"], me["session"]
    said, width, signature, sid, rest = cut(publish, 1, 1, 64, 4)
    require(said == b"\x04" and width[0] in (4, 8) and len(body) % width[0] == 0, "MALFORMED")
    kind = f"<i{width[0]}"
    rnd, rest = number(rest)
    attempt, rest = number(rest)
    previous, model, nxt, agg, rest = cut(rest, 4, 4, 32, 32)
    m, rest = number(rest)
    require(len(rest) == 98 * m, "MALFORMED")
    roster = []
    for i in range(m):
        at, bound, sig, _ = cut(rest[98 * i : 98 * (i + 1)], 2, 32, 64)
        roster.append((member(me, at), bound, sig))
    names = [name for name, _, _ in roster]
    sid, previous, model = whole(sid, session), whole(previous, me["tip"]), whole(model, model_hash(me["model"]))
    require((sid, rnd) == (session, me["round"]) and attempt >= 0, "STALE_CONTEXT")
    require(previous == me["tip"], "CHAIN_BREAK")
    require(model == model_hash(me["model"]), "MODEL_MISMATCH")
    require(names == sorted(set(names)), "ROSTER_MALFORMED")
    require(m >= params["min_roster"], "ROSTER_TOO_SMALL")
    require(me["name"] in names, "EXCLUDED")
    require({name: bound for name, bound, _ in roster}[me["name"]] == me["commitment"], "OWN_COMMIT_ALTERED")
    for name, bound, sig in roster:
        claim = update_claim(session, me["round"], name, previous, model, bound)
        require(signed(keys[name], sig, "update/v1", *claim), "PEER_UPDATE_SIG")
    require(kind == kind_of(params, m) and len(body) == params["size"] * width[0], "SHAPE")
    total = list(struct.unpack(f"<{params['size']}{'i' if kind == '<i4' else 'q'}", body))
    require(all(abs(a) <= m * umax(params) for a in total), "RANGE")
    dg = digest_of(header_bytes((sid, rnd, attempt), [previous, model, nxt, agg], roster))
    require(agg == aggregate_hash(total, kind) and signed(me["server"], signature, "server/v1", dg), "SERVER_SIG")
    require(nxt == model_hash(next_model(me["model"], total, m, params)), "NEXT_MODEL_MISMATCH")
    me.update(names=names, total=total, dg=dg, next_model=nxt)
    return dg


def on_tags(me: dict[str, Any], tags: bytes) -> bytes:
    """All checks on TAGS; returns the new tip."""
    m = len(me["names"])
    said, bits, rest = cut(tags, 1, (m + 7) // 8)
    present = [bits[i // 8] >> (i % 8) & 1 == 1 for i in range(8 * len(bits))]
    require(said == b"\x06" and not any(present[m:]) and len(rest) == 80 * sum(present), "MALFORMED")
    require(all(present[:m]), "TAGS_INCOMPLETE")
    values = []
    for i, name in enumerate(me["names"]):
        value, sig = rest[80 * i : 80 * i + 16], rest[80 * i + 16 : 80 * (i + 1)]
        values.append(int.from_bytes(value, "little"))
        require(signed(me["keys"][name], sig, "tag/v1", name.encode(), me["dg"], value) and values[-1] < P, "TAG_SIG")
    require(sum(values) % P == sketch(challenge_seed(me["dg"]), me["total"]), "SUM_MISMATCH")
    return link(me["tip"], me["dg"], me["next_model"])
