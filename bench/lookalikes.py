"""Look-alikes of public logs in their raw form: separators, names, gaps and ids as they have them.

No row of a data set is in them: ids are drawn from laws, with a seed. Columns are described by what
they are, so that what ``planner inspect`` takes them for can be judged.
``python -m bench.lookalikes FOLDER`` writes them.
"""

import gzip
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookalike:
    """A log, and what is in its columns."""

    of: str
    """The public data set that it looks like."""
    file: str
    lines: Callable[[int], Iterator[str]]
    """Returns the lines of so many samples."""
    kinds: str
    """What columns are, in order; ``-`` for what no model reads by an id."""
    separator: str = ","
    header: bool = True
    lists: str = ""
    """What separates ids inside of a text."""
    encoding: str = "utf-8"

    def make(self, folder: Path, samples: int = SAMPLES) -> Path:
        """Write the file."""
        path = folder / self.file
        data = "".join(f"{line}\n" for line in self.lines(samples)).encode(self.encoding)
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        return path


def _zipf(random: np.random.Generator, exponent: float, rows: int, samples: int) -> NDArray[Any]:
    return random.zipf(exponent, samples) % rows


def _hex(ids: NDArray[Any]) -> list[str]:
    return [f"{int(n) * 2654435761 % 2**32:08x}" for n in ids]


def _rows(*columns: Sequence[Any] | NDArray[Any], separator: str = ",") -> Iterator[str]:
    for row in zip(*columns, strict=True):
        yield separator.join(map(str, row))


def _gaps(
    random: np.random.Generator, values: Sequence[Any] | NDArray[Any], share: float
) -> list[Any]:
    missing = random.random(len(values)) < share
    return ["" if gone else value for gone, value in zip(missing, values, strict=True)]


def criteo(samples: int) -> Iterator[str]:
    """Label, 13 counts with gaps and -1, 26 hashes in hex; tabs, no names."""
    random = np.random.default_rng(1)
    counts = np.floor(np.exp(random.normal(1.5, 1.6, (13, samples)))).astype(int) - 1
    numbers = [_gaps(random, row, 0.2) for row in counts]
    texts = [
        _gaps(
            random, _hex(_zipf(random, 1.1 + place % 5 / 10, 10 ** (2 + place % 4), samples)), 0.03
        )
        for place in range(26)
    ]
    label = (random.random(samples) < 0.25).astype(int)
    return _rows(label, *numbers, *texts, separator="\t")


def avazu(samples: int) -> Iterator[str]:
    """Row numbers of 64 bits, clicks, YYMMDDHH, hex, raw ids with -1; commas, gzipped."""
    random = np.random.default_rng(2)
    yield "id,click,hour,banner_pos,site_id,device_id,C14,C20"
    campaign = np.where(
        random.random(samples) < 0.4, -1, 100_000 + random.integers(0, 160, samples)
    )
    yield from _rows(
        random.integers(2**63, 2**64 - 1, samples, dtype=np.uint64),
        (random.random(samples) < 0.17).astype(int),
        14102100 + np.sort(random.integers(0, 24, samples)),
        random.integers(0, 7, samples),
        _hex(_zipf(random, 1.3, 900, samples)),
        _hex(_zipf(random, 1.15, 10**7, samples)),
        375 + _zipf(random, 1.3, 2000, samples),
        campaign,
    )


def movielens(samples: int, separator: str = "\t") -> Iterator[str]:
    """User, item, rating from 1 to 5, time; no names."""
    random = np.random.default_rng(3)
    return _rows(
        1 + _zipf(random, 1.3, 943, samples),
        1 + _zipf(random, 1.2, 1682, samples) * 7 % 1682,
        random.integers(1, 6, samples),
        874_724_710 + random.integers(0, 10**7, samples),
        separator=separator,
    )


def movielens_csv(samples: int) -> Iterator[str]:
    """User, item with gaps between ids, halves of ratings, time; with names."""
    random = np.random.default_rng(4)
    yield "userId,movieId,rating,timestamp"
    yield from _rows(
        1 + _zipf(random, 1.3, 943, samples),
        1 + _zipf(random, 1.2, 9000, samples) * 13,
        random.integers(1, 11, samples) / 2,
        874_724_710 + random.integers(0, 10**7, samples),
    )


def genres(samples: int) -> Iterator[str]:
    """Films with a title, a comma in it, and genres between bars."""
    random = np.random.default_rng(5)
    yield "movieId,title,genres"
    kinds = ("Action", "Comedy", "Drama", "Horror", "Romance", "Thriller")
    for place in range(samples):
        chosen = random.choice(kinds, random.integers(1, 4), replace=False)
        yield f'{place + 1},"Film, The {place} (1999)",{"|".join(chosen)}'


def yoochoose(samples: int) -> Iterator[str]:
    """Session, time as text, one of 314 raw ids, category; commas, no names, in session order."""
    random = np.random.default_rng(6)
    sessions = np.repeat(np.arange(1, samples), random.integers(1, 8, samples - 1))[:samples]
    times = [f"2014-04-{1 + n % 28:02d}T10:51:09.277Z" for n in range(samples)]
    items = 214_507_000 + _zipf(random, 1.3, 314, samples) * 1078
    return _rows(sessions, times, items, random.choice(["0", "S", "1", "7"], samples))


def ali_ccp(samples: int) -> Iterator[str]:
    """Row, labels, hash, number of features, and features between control characters."""
    random = np.random.default_rng(7)
    features = _zipf(random, 1.3, 5000, samples * 5).reshape(samples, 5)
    texts = ["\x01".join(f"508\x02{n}\x031.0" for n in row) for row in features]
    return _rows(
        np.arange(1, samples + 1),
        (random.random(samples) < 0.04).astype(int),
        np.zeros(samples, int),
        _hex(_zipf(random, 1.2, 3000, samples)),
        np.full(samples, 5),
        texts,
    )


def ali_express(samples: int) -> Iterator[str]:
    """Search, hashed categories, fractions, and two labels; commas, with names."""
    random = np.random.default_rng(8)
    names = ("search_id", "categorical_1", "categorical_2", "categorical_3")
    yield ",".join([*names, "numerical_1", "numerical_2", "click", "conversion"])
    yield from _rows(
        np.sort(random.integers(0, samples // 5, samples)),
        _zipf(random, 1.4, 8, samples),
        _zipf(random, 1.2, 60_000, samples) * 7919 % 60_000,
        _zipf(random, 1.3, 20, samples),
        random.random(samples).round(4),
        random.random(samples).round(4),
        (random.random(samples) < 0.05).astype(int),
        (random.random(samples) < 0.01).astype(int),
    )


def amazon(samples: int) -> Iterator[str]:
    """Reviews as JSON lines: texts as ids, a rating, prose, seconds."""
    random = np.random.default_rng(9)
    users, items = (_zipf(random, 1.3, rows, samples) for rows in (4000, 1500))
    for place, (user, item) in enumerate(zip(users, items, strict=True)):
        text = f"review {place}: " + " ".join(random.choice(["good", "bad", "long", "short"], 20))
        yield json.dumps({
            "reviewerID": f"A{user:013d}", "asin": f"B{item:09d}", "overall": float(1 + place % 5),
            "reviewText": text, "unixReviewTime": 1_252_800_000 + 86400 * (place % 900),
        })  # fmt: skip


def taobao(samples: int) -> Iterator[str]:
    """User, item, category, behaviour as text, seconds; commas, no names."""
    random = np.random.default_rng(10)
    return _rows(
        1 + _zipf(random, 1.2, 30_000, samples) * 31,
        1 + _zipf(random, 1.2, 160_000, samples) * 32,
        80 + _zipf(random, 1.4, 9000, samples) * 500,
        random.choice(["pv", "cart", "fav", "buy"], samples, p=[0.9, 0.05, 0.03, 0.02]),
        1_511_544_070 + random.integers(0, 8 * 86400, samples),
    )


def retail_rocket(samples: int) -> Iterator[str]:
    """Milliseconds, visitor, event, item, and a transaction that is nearly never there."""
    random = np.random.default_rng(11)
    yield "timestamp,visitorid,event,itemid,transactionid"
    transactions = _gaps(random, random.integers(0, 17_000, samples), 0.99)
    yield from _rows(
        1_433_000_000_000 + random.integers(0, 10**9, samples),
        _zipf(random, 1.15, 1_400_000, samples) * 7919 % 1_400_000,
        random.choice(["view", "addtocart", "transaction"], samples, p=[0.97, 0.02, 0.01]),
        _zipf(random, 1.2, 460_000, samples) * 7919 % 460_000,
        transactions,
    )


def book_crossing(samples: int) -> Iterator[str]:
    """Quoted fields between semicolons, Latin-1, text ids, ratings from 0 to 10."""
    random = np.random.default_rng(12)
    yield '"User-ID";"ISBN";"Place";"Book-Rating"'
    books, users = _zipf(random, 1.3, 9000, samples), 1 + _zipf(random, 1.2, 2700, samples)
    for place, (user, book) in enumerate(zip(users, books, strict=True)):
        yield f'"{user}";"{book:09d}X";"Orléans {place % 40}";"{place % 11}"'


def atomic(samples: int) -> Iterator[str]:
    """RecBole's atomic file: names with types, tabs, fractions that are whole."""
    yield "user_id:token\titem_id:token\trating:float\ttimestamp:float"
    for line in movielens(samples):
        yield f"{line}.0"


LOOKALIKES = (
    Lookalike(of="Criteo display ads", file="train.txt", lines=criteo, separator="\t", header=False,
              kinds=f"label {'number ' * 13}{'category ' * 26}"),
    Lookalike(of="Avazu", file="train.gz", lines=avazu,
              kinds="row_number label time ids category category ids raw"),
    Lookalike(of="MovieLens 100k", file="u.data", lines=movielens, separator="\t", header=False,
              kinds="ids ids label time"),
    Lookalike(of="MovieLens 1M", file="ratings.dat", header=False,
              lines=lambda n: movielens(n, "::"), separator="::", kinds="ids ids label time"),
    Lookalike(of="MovieLens 20M", file="ratings.csv", lines=movielens_csv, kinds="ids ids - time"),
    Lookalike(of="MovieLens films", file="movies.csv", lines=genres,
              kinds="ids - category", lists="|"),
    Lookalike(of="Yoochoose clicks", file="yoochoose-clicks.dat", lines=yoochoose, header=False,
              kinds="ids time raw category"),
    Lookalike(of="Ali-CCP", file="sample_skeleton_train.csv", lines=ali_ccp, header=False,
              kinds="row_number label - category - category", lists="\x01"),
    Lookalike(of="AliExpress", file="train.csv", lines=ali_express,
              kinds="ids ids ids ids number number label label"),
    Lookalike(of="Amazon reviews", file="reviews.json", lines=amazon,
              kinds="category category label - time"),
    Lookalike(of="Taobao behaviour", file="UserBehavior.csv", lines=taobao, header=False,
              kinds="ids ids ids category time"),
    Lookalike(of="Retailrocket", file="events.csv", lines=retail_rocket,
              kinds="time ids category ids ids"),
    Lookalike(of="Book-Crossing", file="BX-Book-Ratings.csv", lines=book_crossing, separator=";",
              kinds="ids category category label", encoding="latin-1"),
    Lookalike(of="RecBole's ml-100k", file="ml-100k.inter", lines=atomic, separator="\t",
              kinds="ids ids label time"),
)  # fmt: skip

if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for made in LOOKALIKES:
        made.make(target)
