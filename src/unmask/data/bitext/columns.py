"""Bitext columns: finds the columns of sources and targets in a table by their names.

Columns with unknown names are never used: the first two columns of a table may be a row number and a text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from unmask.data.files.tables import column_of

USUAL = (  # names of the columns of sources and targets in public data sets
    *(("source", "target"), ("src", "tgt"), ("src", "trg"), ("source_text", "target_text")),
    *(("sentence", "translation"), ("question", "answer"), ("Q", "A"), ("input", "output"), ("vector", "text")),
)
NESTED = "translation."  # {"translation": {"en": …, "de": …}}, as in translation data sets of the hub

# ISO 639-1; the three-letter codes of most of these languages, and of languages of public bitext without a two-letter
# code; country codes that are often used for the language. A pattern of two or three letters would match `id`, `row`.
_CODES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo es
    et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki
    kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no
    nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta
    te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    afr alb amh ara arb arm asm aze baq bel ben bos bre bul bur cat ces chi cmn cos cym cze dan deu dut ell eng epo est
    eus fao fas fin fra fre fry gla gle glg grc gre guj hat hau heb hin hrv hun hye ibo ice ind isl ita jav jpn kan kat
    kaz khm kin kir kor kur lao lat lav lin lit ltz mac mal mar may mkd mlg mlt mon mri msa mya nep nld nno nob nor oci
    ori pan per pes pol por pus ron rum run rus san sin slk slo slv smo sna snd som spa sqi srp sun swa swe tam tat tel
    tgk tgl tha tir ton tsn tso tuk tur uig ukr urd uzb vie wel wol xho yid yor yue zho zul
    ast bho ceb ckb dsb fil fur gsw hsb kmr lij lmo lzh mai mni nds sat scn sme szl tpi vec wuu
    cn cz dk gr jp ua
    """.split()  # noqa: SIM905 (as in unmask.huggingface.config)
)
_CODE = re.compile(r"(?P<language>[a-z]{2,3}|[A-Z]{2,3})(?P<more>[-_][A-Za-z]{2,8})?")  # en, EN, pt-BR, zh_Hans
_SCRIPT = re.compile(r"[-_][A-Z][a-z]{3}")  # a script, as for rare languages in public data sets: ace_Latn
_NAMES = frozenset(
    """
    afrikaans albanian amharic arabic armenian azerbaijani basque belarusian bengali bosnian breton bulgarian burmese
    cantonese catalan chinese croatian czech danish dutch english esperanto estonian filipino finnish french galician
    georgian german greek gujarati hausa hebrew hindi hungarian icelandic igbo indonesian irish italian japanese
    javanese kannada kazakh khmer korean kurdish kyrgyz lao latin latvian lithuanian luxembourgish macedonian malagasy
    malay malayalam maltese mandarin marathi mongolian nepali norwegian occitan oriya pashto persian polish portuguese
    punjabi romanian russian sanskrit serbian sinhala slovak slovenian somali spanish swahili swedish tagalog tajik
    tamil tatar telugu thai tibetan turkish turkmen ukrainian urdu uyghur uzbek vietnamese welsh xhosa yiddish yoruba
    zulu
    """.split()  # noqa: SIM905 (as in unmask.huggingface.config)
)


def known(names: Sequence[str]) -> tuple[str, str] | None:
    """The columns of sources and targets: usual names, or the only two names that are language codes, in lower or upper
    case; None if there are none. `id` is Indonesian only if there is no third column, else a row number."""
    for first, second in USUAL:
        source, target = column_of(names, [first]), column_of(names, [second])
        if source is not None and target is not None:
            return source, target
    for prefix in (NESTED, ""):
        codes = [name for name in names if name.startswith(prefix) and _is_code(name.removeprefix(prefix))]
        if not prefix and len(names) > 2:
            codes = [name for name in codes if name.lower() != "id"]
        if len(codes) == 2 and codes[0] != codes[1]:
            return codes[0], codes[1]
    return None


def are_header(names: Sequence[str]) -> bool:
    """Whether the fields of a first line are column names instead of a pair: two are known, or there are two fields
    that are languages, by code or English name. The names of two languages are not translations of each other."""
    if known(names) is not None:
        return True
    return len({name.lower() for name in names}) == len(names) == 2 and all(map(_is_language, names))


def _is_language(name: str) -> bool:
    return name.lower() in _NAMES or _is_code(name)


def _is_code(name: str) -> bool:
    found = _CODE.fullmatch(name)
    return found is not None and (found["language"].lower() in _CODES or bool(_SCRIPT.fullmatch(found["more"] or "")))
