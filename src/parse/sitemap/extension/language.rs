//! Language codes as hreflang wants them, by table.
//!
//! `x-default`, or an ISO 639-1 language with an optional ISO 15924 script and
//! an optional ISO 3166-1 region, joined by `-`, in any letter case
//! (<https://developers.google.com/search/docs/specialty/international/localized-versions>).
//! Codes that were withdrawn from the standards are not known.

/// ISO 639-1.
const LANGUAGES: Pairs = Pairs::of(
    b"aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv \
      cy da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr \
      ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw \
      ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv \
      ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr \
      ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi \
      yo za zh zu",
);

/// ISO 3166-1 alpha-2.
const REGIONS: Pairs = Pairs::of(
    b"ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bl bm bn bo bq \
      br bs bt bv bw by bz ca cc cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm \
      do dz ec ee eg eh er es et fi fj fk fm fo fr ga gb gd ge gf gg gh gi gl gm gn gp gq gr gs \
      gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke kg kh ki km kn \
      kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mf mg mh mk ml mm mn mo mp mq \
      mr ms mt mu mv mw mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm \
      pn pr ps pt pw py qa re ro rs ru rw sa sb sc sd se sg sh si sj sk sl sm sn so sr ss st sv \
      sx sy sz tc td tf tg th tj tk tl tm tn to tr tt tv tw tz ua ug um us uy uz va vc ve vg vi \
      vn vu wf ws ye yt za zm zw",
);

/// ISO 15924, the scripts that pages are written in; sorted.
const SCRIPTS: [&str; 90] = [
    "adlm", "aghb", "arab", "aran", "armn", "avst", "bali", "bamu", "batk", "beng", "bopo", "brai",
    "bugi", "buhd", "cakm", "cans", "cham", "cher", "copt", "cprt", "cyrl", "cyrs", "deva", "dsrt",
    "egyp", "ethi", "geok", "geor", "goth", "gran", "grek", "gujr", "guru", "hanb", "hang", "hani",
    "hano", "hans", "hant", "hebr", "hira", "hrkt", "jamo", "java", "jpan", "kali", "kana", "khmr",
    "knda", "kore", "kthi", "lana", "laoo", "latf", "latg", "latn", "lepc", "limb", "lisu", "mand",
    "mlym", "mong", "mtei", "mymr", "nkoo", "olck", "orya", "osma", "qaag", "rohg", "runr", "saur",
    "sinh", "sund", "sylo", "syrc", "tale", "talu", "taml", "telu", "tfng", "tglg", "thaa", "thai",
    "tibt", "tirh", "vaii", "wcho", "yiii", "zsym",
];

/// A set of two-letter codes: per first letter a bit for each second one.
struct Pairs([u32; 26]);

impl Pairs {
    const fn of(list: &[u8]) -> Self {
        let mut rows = [0_u32; 26];
        let mut at = 0;
        while at + 1 < list.len() {
            if list[at] == b' ' {
                at += 1;
                continue;
            }
            rows[(list[at] - b'a') as usize] |= 1 << (list[at + 1] - b'a');
            at += 2;
        }
        Self(rows)
    }

    fn contains(&self, code: &str) -> bool {
        let letter = |byte: u8| {
            let lower = byte.to_ascii_lowercase();
            lower.is_ascii_lowercase().then(|| lower - b'a')
        };
        let [first, second] = code.as_bytes() else { return false };
        let (Some(first), Some(second)) = (letter(*first), letter(*second)) else { return false };
        self.0.get(usize::from(first)).is_some_and(|row| row >> second & 1 == 1)
    }
}

/// Is this a code as hreflang wants it?
pub(super) fn is_hreflang(code: &str) -> bool {
    if code.eq_ignore_ascii_case("x-default") {
        return true;
    }
    let mut parts = code.split('-');
    if !parts.next().is_some_and(|language| LANGUAGES.contains(language)) {
        return false;
    }
    match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => true,
        (Some(one), None, _) => REGIONS.contains(one) || is_script(one),
        (Some(script), Some(region), None) => is_script(script) && REGIONS.contains(region),
        _ => false,
    }
}

/// Is this a country of ISO 3166-1?
pub(super) fn is_country(code: &str) -> bool {
    REGIONS.contains(code)
}

fn is_script(code: &str) -> bool {
    let lower = code.to_ascii_lowercase();
    SCRIPTS.binary_search(&lower.as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_a_language_with_a_script_and_a_region_that_the_standards_know() {
        for code in [
            "x-default",
            "X-Default",
            "en",
            "EN",
            "en-GB",
            "en-gb",
            "zh-Hant",
            "zh-Hans-TW",
            "sr-Latn-RS",
            "pt-BR",
            "zu",
            "aa",
            "zh-hk",
            "bo-Tibt",
        ] {
            assert!(is_hreflang(code), "{code}");
        }
        for code in [
            "",
            "-",
            "x",
            "xx",
            "gr",
            "jp",
            "cn",
            "cz",
            "ua",
            "us",
            "uk-UK",
            "en-UK",
            "en_US",
            "en-",
            "-en",
            "en-GB-oxendict",
            "en-419",
            "eng",
            "fil",
            "zh-Hanx",
            "TW-zh",
            "e€",
            "é",
            "default",
            "en-EU",
            "en GB",
            "a1",
            "zh-Hant-",
            "es-la ",
        ] {
            assert!(!is_hreflang(code), "{code}");
        }
    }

    #[test]
    fn the_tables_are_whole_and_sorted() {
        let size = |pairs: &Pairs| pairs.0.iter().map(|row| row.count_ones()).sum::<u32>();
        assert_eq!((size(&LANGUAGES), size(&REGIONS)), (183, 249));
        assert!(SCRIPTS.is_sorted());
    }
}
