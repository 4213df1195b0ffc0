"""Patterns of destinations: what they match and what they do not.

Each entry holds a pattern, names that it matches and names that it does not, all to be put behind a test's own name.
"""

from __future__ import annotations

Patterns = list[tuple[str, list[str], list[str]]]

COMMON: Patterns = [
    ("/*/c", ["/a/c", "/b/c"], ["/c", "/a/b/c", "/a/d", "/a/c/d", "/a.c", "/a/cc"]),
    ("/a/*/c", ["/a/b/c", "/a/x/c"], ["/a/c", "/a/b/b/c", "/b/b/c", "/a/b/c/d", "/a.b.c", "/a/b.c"]),
    ("/*/*/x", ["/a/b/x", "/x/x/x"], ["/a/x", "/a/b/c/x", "/a/b/y"]),
    ("/a/*/c/*/e", ["/a/b/c/d/e"], ["/a/b/c/e", "/a/b/c/d", "/a/b/x/d/e"]),
    ("/a.*.c", ["/a.b.c"], ["/a/b/c", "/a.b.b.c", "/a.c", "/a.b.d"]),
    ("/a.*/c", ["/a.b/c"], ["/a/b/c", "/a.b.c"]),
    ("/a/>", ["/a/b", "/a/b/c", "/a/b.c", "/a/b/c/d"], ["/a", "/b/a", "/ab", "/a.b"]),
    ("/a/**", ["/a/b", "/a/b/c", "/a/b.c", "/a/b/c/d"], ["/a", "/b/a", "/ab", "/a.b"]),
    ("/a.>", ["/a.b", "/a.b.c", "/a.b/c"], ["/a", "/a/b", "/ab"]),
    ("/a.**", ["/a.b", "/a.b.c"], ["/a", "/a/b"]),
    ("/a/#", ["/a", "/a/b", "/a/b/c", "/a/b.c"], ["/ab", "/b", "/a.b"]),
    ("/a.#", ["/a", "/a.b", "/a.b.c"], ["/ab", "/a/b"]),
    ("/*/>", ["/a/b", "/a/b/c"], ["/a"]),
    ("/*/#", ["/a", "/a/b", "/a/b/c"], []),
    ("/a/*/#", ["/a/b", "/a/b/c", "/a/b/c/d"], ["/a", "/b/b"]),
    ("/>/x", ["/>/x"], ["/a/x", "/>/y"]),
    ("/#/x", ["/#/x"], ["/a/x", "/x", "/#/y"]),
    ("/a>", ["/a>"], ["/ab", "/a", "/a/b"]),
    ("/a#", ["/a#"], ["/ab", "/a", "/a/b"]),
]
"""Patterns that mean the same in each setting of `wildcards`."""

DEEP: Patterns = [
    ("/a/*", ["/a/b", "/a/b/c", "/a/b.c", "/a/b/c/d"], ["/a", "/b/a", "/ab", "/a.b"]),
    ("/a.*", ["/a.b", "/a.b.c", "/a.b/c"], ["/a", "/a/b", "/ab"]),
    ("/*", ["/a", "/a/b", "/a.b.c"], [".a"]),
    ("/*/*", ["/a/b", "/a/b/c", "/a/b.c"], ["/a"]),
    ("/a/*/*", ["/a/b/c", "/a/b/c/d"], ["/a/b", "/b/b/c"]),
    ("/x/ab*", ["/x/ab", "/x/abc", "/x/abc/d", "/x/ab/c", "/x/ab.c"], ["/x/a", "/x/b", "/x/cab", "/ab"]),
    ("/*/ab*", ["/x/ab", "/y/abc", "/x/abc/d"], ["/ab", "/x/y/ab", "/x/a"]),
]
"""Patterns in which a last `*` matches the rest of the name (the default)."""

SEGMENT: Patterns = [
    ("/a/*", ["/a/b", "/a/c"], ["/a", "/a/b/c", "/a/b.c", "/ab", "/a.b"]),
    ("/a.*", ["/a.b"], ["/a", "/a/b", "/a.b.c", "/a.b/c"]),
    ("/*", ["/a", "/b"], ["/a/b", "/a.b", ".a"]),
    ("/*/*", ["/a/b"], ["/a", "/a/b/c", "/a.b"]),
    ("/x/ab*", ["/x/ab", "/x/abc"], ["/x/abc/d", "/x/ab/c", "/x/ab.c", "/x/a"]),
    ("/*/ab*", ["/x/ab", "/y/abc"], ["/x/abc/d", "/ab", "/x/y/ab"]),
]
"""The same with `wildcards=segment`, where `*` matches one segment."""

MISPLACED = ["/a*b", "/*a", "/a*/b", "/a/b*c/d", "/a**", "/***", "/a*.b", "/*a/>", "/a*b*", "/a*>"]
"""Patterns that are refused: a `*` that is neither a whole segment nor a segment's end."""
