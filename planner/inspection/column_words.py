"""Words of columns' names that say what is in them."""

ID_WORDS = frozenset({
    "ad", "adgroup", "brand", "campaign", "cat", "cate", "category", "creative", "customer",
    "id", "ids", "iid", "item", "movie", "node", "product", "query", "seller", "session",
    "shop", "sku", "token", "uid", "user", "visit",
})  # fmt: skip
"""A column of ids has such a word: it is no number, whatever its values."""
LABEL_WORDS = frozenset({
    "bought", "buy", "click", "clicked", "clicks", "conversion", "converted", "ctr", "cvr",
    "is_click", "label", "labels", "like", "liked", "outcome", "overall", "purchase",
    "purchased", "rate", "rating", "ratings", "response", "score", "stars", "target", "y",
})  # fmt: skip
"""A label has such a word: what is to be predicted."""
TIME_WORDS = frozenset({
    "date", "datetime", "day", "dt", "hour", "minute", "month", "time", "timeframe",
    "times", "timestamp", "ts", "week", "year",
})  # fmt: skip
"""A column of times or dates has such a word."""
NUMBER_WORDS = frozenset({
    "amount", "cnt", "cost", "count", "dense", "duration", "integer", "length", "num",
    "number", "numeric", "percent", "price", "qty", "quantity", "ratio", "revenue", "sales",
    "total", "value", "views", "votes", "weight",
})  # fmt: skip
"""A column of quantities has such a word."""
ROW_NAMES = frozenset({
    "id", "impression_id", "index", "instance_id", "log_id", "record_id", "row", "row_id",
    "row_number", "rowid", "rownum", "sample_id",
})  # fmt: skip
"""Whole names of columns that count or name samples."""
