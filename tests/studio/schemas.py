"""Every kind of thing that a schema can say, written as people write it: with comments, blanks and line ends."""

from __future__ import annotations

_HEAD = '# mine\n[dataset]\nname = "visits"\nreviewed = true\n'

SCHEMAS: dict[str, bytes] = {
    "levels": (
        _HEAD + '[columns.sex]  # from the form\nkind = "categorical"\nlevels = ["F", "M"]\n'
        '[columns.city]\nkind = "categorical"\nlevels = ["New York", " Lyon ", "a\\nb", "\u202eabc", "é", "x"]\n'
        'outside = "x"\nmissing = "own-level"\n'
    ).encode(),
    "ordinal": (
        _HEAD + '[columns.pain]\nkind = "ordinal"\nlevels = ["none", "some", "much"]\nscores = [0, 0.5, 3]\n'
        'spellings = { none = ["0", "no"], much = ["2"] }\nmissing_words = ["NA", "k.A."]\nmissing = "none"\n'
    ).encode(),
    "boolean": (
        _HEAD + '[columns."smokes, ever"]\nkind = "boolean"\noutside = "false"\n'
        'spellings.true = ["ja"]\nspellings.false = ["nein"]\n[columns.plain]\nkind = "boolean"\n'
    ).encode(),
    "numeric": (
        _HEAD + '[columns.a]\nkind = "numeric"\nbounds = [0, 120]\n'
        '[columns.b]\nkind = "numeric"\nbounds = [-1e-5, 1.5e10]\nbins = 6\nmissing = "own-level"\n'
        '[columns.c]\nkind = "numeric"\nbounds = [0, 120]\nbins = [18, 40.5, 65]\nmissing = 0\n'
        '[columns.d]\nkind = "numeric"\nbounds = [0, 120]\nbins = [18]\ncenter = 40\nspread = 12.5\n'
        'missing_words = ["-9"]\n'
    ).encode(),
    "facts": (
        b'[dataset]\nname = "visits"\nreviewed = true\nunit = "one  visit"\nrelation = "replace-one"\n'
        b'nominal_rows = 1_000\npublic = true\nignore = ["id", "date of birth"]\n'
        b'[file]\nseparator = ";"\ndecimal = ","\n'
        b'[columns.a]\nkind = "boolean"\n[columns.b]\nkind = "boolean"\n[columns.c]\nkind = "boolean"\n'
        b'[knowledge]\ntiers = [["a"], ["b", "c"]]\nforbidden = [["b", "c"]]\nrequired = [["a", "b"]]\n'
    ),
    "persons": (
        b'[dataset]\nname = "visits"\nreviewed = true\nunit = "patient"\nperson = "id"  # hidden\nrecords = "one"\n'
        b'which = "last"\norder = "day"\norder_format = "%d.%m.%Y"\nmissing_person = "own"\n'
        b'[columns.a]\nkind = "boolean"\n[columns.b]\nkind = "boolean"\n'
        b'[reducers.b]\ntake = "any"\nwhere = { code = ["E10", "E11"] }\n'
    ),
    "line-ends": (_HEAD + '[columns.sex]\nkind = "categorical"\nlevels = [\n  "F",\n  "M",\n]\n')
    .replace("\n", "\r\n")
    .encode("utf-8-sig"),
}
