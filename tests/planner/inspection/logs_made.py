"""Logs as people have them, made up: what public data sets look like, none of their rows."""

import gzip
from pathlib import Path

import numpy as np


def criteo(path: Path, samples: int = 4000) -> Path:
    """Label, 13 counts with gaps and -1, 26 hashes in hex; tabs, no names."""
    random = np.random.default_rng(1)
    counts = np.floor(np.exp(random.normal(1.5, 1.6, (samples, 13)))).astype(int) - 1
    hashes = random.zipf(1.3, (samples, 26)) % 5000 * 2654435761 % 2**32
    lines = []
    for place in range(samples):
        numbers = [str(n) if random.random() > 0.2 else "" for n in counts[place]]
        texts = [f"{n:08x}" if random.random() > 0.03 else "" for n in hashes[place]]
        lines.append("\t".join([str(int(random.random() < 0.25)), *numbers, *texts]))
    path.write_text("\n".join(lines) + "\n")
    return path


def avazu(path: Path, samples: int = 3000) -> Path:
    """Row numbers of 64 bits, clicks, YYMMDDHH, hex, raw ids with -1; commas, gzipped."""
    random = np.random.default_rng(2)
    rows = random.integers(2**63, 2**64 - 1, samples, dtype=np.uint64)
    sites = random.zipf(1.3, samples) % 900 * 7919
    campaigns = np.where(
        random.random(samples) < 0.4, -1, 100_000 + random.integers(0, 160, samples)
    )
    lines = ["id,click,hour,banner_pos,site_id,C20"]
    lines += [
        f"{rows[i]},{i % 5 == 0:d},{14102100 + i % 24},{i % 7},{sites[i]:08x},{campaigns[i]}"
        for i in range(samples)
    ]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def movielens(path: Path, separator: str = "\t", samples: int = 5000) -> Path:
    """User, item, rating from 1 to 5, time; no names."""
    random = np.random.default_rng(3)
    users, items = random.zipf(1.3, samples) % 943 + 1, random.zipf(1.2, samples) * 7 % 1682 + 1
    times = 874_724_710 + random.integers(0, 10**7, samples)
    rows = zip(users, items, random.integers(1, 6, samples), times, strict=True)
    path.write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))
    return path


def yoochoose(path: Path, samples: int = 6000) -> Path:
    """Session, time as text, one of 314 raw ids, category; commas, no names, in session order."""
    random = np.random.default_rng(4)
    sessions = np.repeat(np.arange(1, samples), random.integers(1, 8, samples - 1))[:samples]
    items = 214_507_000 + random.zipf(1.3, samples) % 314 * 1078
    path.write_text(
        "".join(
            f"{sessions[i]},2014-04-{1 + i % 28:02d}T10:51:09.277Z,{items[i]},"
            f"{'S' if i % 3 else i % 13}\n"
            for i in range(samples)
        )
    )
    return path
