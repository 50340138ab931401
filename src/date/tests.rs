//! Every form of date that the web writes, and those that are none.

use super::*;

fn shown(found: Option<Lastmod>) -> Option<(String, Precision)> {
    found.map(|l| (l.at.to_string(), l.precision))
}

#[test]
fn the_six_forms_of_the_w3c_note_keep_their_precision() {
    let table = [
        ("1997", "1997-01-01T00:00:00Z", Precision::Year),
        ("1997-07", "1997-07-01T00:00:00Z", Precision::Month),
        ("1997-07-16", "1997-07-16T00:00:00Z", Precision::Day),
        ("1997-07-16T19:20+01:00", "1997-07-16T18:20:00Z", Precision::Minute),
        ("1997-07-16T19:20:30+01:00", "1997-07-16T18:20:30Z", Precision::Second),
        ("1997-07-16T19:20:30.45+01:00", "1997-07-16T18:20:30.45Z", Precision::Fraction),
    ];
    for (text, at, precision) in table {
        assert_eq!(shown(lastmod(text)), Some((at.to_owned(), precision)), "{text}");
    }
}

#[test]
fn deviations_of_the_field_are_read() {
    let table = [
        (" 2023-06-15\n", "2023-06-15T00:00:00Z"),
        ("2024-05-08 08:53:11 AM", "2024-05-08T08:53:11Z"),
        ("2024-05-08 12:53:11 am", "2024-05-08T00:53:11Z"),
        ("2024-05-08 01:53:11PM", "2024-05-08T13:53:11Z"),
        ("2023-6-5", "2023-06-05T00:00:00Z"),
        ("2023/06/05", "2023-06-05T00:00:00Z"),
        ("2023-06-15T10:30:05+0200", "2023-06-15T08:30:05Z"),
        ("2023-06-15T10:30:05 +02", "2023-06-15T08:30:05Z"),
        ("2026-09-15 10:30:05 +0000 UTC", "2026-09-15T10:30:05Z"),
        ("2026-09-15 10:30:05.25 +0200 CEST", "2026-09-15T08:30:05.25Z"),
        ("2024-01-15 22:30:00 -0300 -03", "2024-01-16T01:30:00Z"),
        ("2024-01-15 10:30:00 +0100 +01", "2024-01-15T09:30:00Z"),
        ("2024-01-15 10:30:00.5 +0530 +0530", "2024-01-15T05:00:00.5Z"),
        ("2024-01-15T22:30:00-03:00 -03", "2024-01-16T01:30:00Z"),
        ("2024-01-15 22:30:00 -0300 -03 m=+0.000012", "2024-01-16T01:30:00Z"),
        ("20240115T223000-0300 -03", "2024-01-16T01:30:00Z"),
        ("2024-01-15 22:30:00 -0300 -3 comments", "2024-01-15T00:00:00Z"),
        ("2023-06-15T10:30:05+00:00Z", "2023-06-15T10:30:05Z"),
        ("2023-06-15T10:30:05.123456+00:00Z", "2023-06-15T10:30:05.123456Z"),
        ("2023-06-15T10:30:05+0200z", "2023-06-15T08:30:05Z"),
        ("2026-09-15 10.30.05", "2026-09-15T10:30:05Z"),
        ("2023-06-15 10:30:05 UTC", "2023-06-15T10:30:05Z"),
        ("2023-06-15 10:30:05 CEST", "2023-06-15T08:30:05Z"),
        ("2023-06-15T10:30:05 XYZT", "2023-06-15T00:00:00Z"),
        ("2023-06-15T10:30:05Z extra", "2023-06-15T00:00:00Z"),
        ("2023-06-15 10:30:05 Etc/UTC", "2023-06-15T10:30:05Z"),
        ("2023-06-15T10:30", "2023-06-15T10:30:00Z"),
        ("2023-06-15T24:00:00Z", "2023-06-16T00:00:00Z"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
        ("2023-06-15+02:00", "2023-06-15T00:00:00Z"),
        ("2023-06-15Z", "2023-06-15T00:00:00Z"),
        ("20230615", "2023-06-15T00:00:00Z"),
        ("20230615T103005Z", "2023-06-15T10:30:05Z"),
        ("1686825005", "2023-06-15T10:30:05Z"),
        ("1686825005123", "2023-06-15T10:30:05.123Z"),
        ("Thu, 15 Jun 2023 10:30:05 GMT", "2023-06-15T10:30:05Z"),
        ("2023-Jun-15", "2023-06-15T00:00:00Z"),
        ("20230615103005", "2023-06-15T10:30:05Z"),
        ("2023年6月15日", "2023-06-15T00:00:00Z"),
        ("2023년 06월 15일 10:30:05", "2023-06-15T10:30:05Z"),
    ];
    for (text, at) in table {
        assert_eq!(shown(lastmod(text)).map(|s| s.0).as_deref(), Some(at), "{text}");
    }
}

#[test]
fn what_is_no_date_is_none() {
    let table = [
        "",
        " ",
        "blah",
        "invalid-date",
        "0000-00-00",
        "0000-00-00T00:00:00Z",
        "0001-01-01T00:00:00",
        "1970-01-01",
        "1970-01-01T00:00:00Z",
        "0",
        "2023-13-01",
        "2023-02-30",
        "2023-00-10",
        "2021-06-18T112:13:04+00:00",
        "2005-01-01<",
        "2023-06-15T25:00:00Z",
        "2023-06-15T10:61:00Z",
        "99999-01-01",
        "-2023-01-01",
        "now",
        "2023-06-15T10:30:05+99:00x",
        "2023-06-15T10:30:05Z<",
        "03-12-31",
        "26-11-21",
        "26-11-21 10:30",
        "9999999999999999999",
    ];
    for text in table {
        assert_eq!(lastmod(text), None, "{text}");
    }
}

#[test]
fn a_half_of_the_day_is_read_with_a_blank_in_it() {
    let table = [
        ("3 jun 2017 3:15 p. m.", "2017-06-03T15:15:00Z"),
        ("3 jun 2017 12:15:30 a.\u{a0}m. GMT+2", "2017-06-02T22:15:30Z"),
        ("3 Jun 2017 3:15 P M", "2017-06-03T15:15:00Z"),
        ("2017-06-03 3:15\u{202f}p.\u{202f}m.", "2017-06-03T15:15:00Z"),
        ("2017-06-03 3:15 p.m.", "2017-06-03T15:15:00Z"),
        ("3 Jun 2017 3:15 p march", "2017-06-03T00:00:00Z"),
        ("3 Jun 2017 3:15 m", "2017-06-03T03:15:00Z"),
    ];
    for (text, want) in table {
        let found = feed(text).map(|date| date.at.to_string());
        assert_eq!(found.as_deref(), Some(want), "{text}");
    }
}

#[test]
fn minutes_and_seconds_of_one_digit_are_read() {
    let table = [
        ("Mon, 2 Jan 2017 15:4:5 -0700", "2017-01-02T22:04:05Z"),
        ("Mon, 2 Jan 2017 5:4 GMT", "2017-01-02T05:04:00Z"),
        ("2017-1-2 15:4:5", "2017-01-02T15:04:05Z"),
        ("2017-01-02T15:4Z", "2017-01-02T15:04:00Z"),
    ];
    for (text, want) in table {
        assert_eq!(shown(lastmod(text)).map(|s| s.0).as_deref(), Some(want), "{text}");
    }
    assert_eq!(lastmod("2017-01-02 15.4"), None);
}

#[test]
fn the_name_of_a_zone_may_stand_for_the_letter_before_the_time() {
    let table = [
        ("2017-01-02CET15:04:05+01:00", "2017-01-02T14:04:05Z"),
        ("2017-01-02UTC15:04:05+00:00", "2017-01-02T15:04:05Z"),
        ("2017-01-02EST15:04:05", "2017-01-02T20:04:05Z"),
        ("2017-01-02XYZ15:04:05+05:30", "2017-01-02T09:34:05Z"),
        ("2017-01-02TT15:04:05Z", "2017-01-02T15:04:05Z"),
        // Where neither is known, the day is as written.
        ("2017-01-02XYZ15:04:05", "2017-01-02T00:00:00Z"),
    ];
    for (text, want) in table {
        assert_eq!(lastmod(text).map(|date| date.at.to_string()).as_deref(), Some(want), "{text}");
    }
    for text in ["2017-01-02UTC15", "2017-01-02version15:04:05"] {
        assert_eq!(lastmod(text), None, "{text}");
    }
}

#[test]
fn a_zone_that_says_its_offset_too_is_read_where_both_agree() {
    let table = [
        ("Mon, 02 Jan 2017 15:04:05 MST-07:00", "2017-01-02T22:04:05Z"),
        ("Mon Jan 2 15:04:05 CET+0100 2017", "2017-01-02T14:04:05Z"),
        ("2017-01-02T15:04:05 CEST+02:00", "2017-01-02T13:04:05Z"),
        // POSIX counts to the west.
        ("Mon, 02 Jan 2017 15:04:05 EST+5", "2017-01-02T00:00:00Z"),
        ("Mon, 02 Jan 2017 15:04:05 XYZ-07:00", "2017-01-02T00:00:00Z"),
        ("Mon, 02 Jan 2017 15:04:05 PST8PDT", "2017-01-02T00:00:00Z"),
        ("Mon, 02 Jan 2017 15:04:05 GMT-0700", "2017-01-02T22:04:05Z"),
    ];
    for (text, want) in table {
        assert_eq!(shown(feed(text)).map(|s| s.0).as_deref(), Some(want), "{text}");
    }
}

#[test]
fn a_zone_behind_a_mere_date_leaves_the_day_in_every_form() {
    let table = [
        "2017-06-03 -0700",
        "2017-06-03+02:00",
        "20170603 +0200",
        "20170603 -07:00",
        "03.06.2017 -0700",
        "03 Jun 2017 -0700",
        "Sat, 03 Jun 2017 +02:00",
        "20170603T",
    ];
    for text in table {
        let want = Some(("2017-06-03T00:00:00Z".to_owned(), Precision::Day));
        assert_eq!(shown(lastmod(text)), want, "{text}");
    }
    assert_eq!(lastmod("03 Jun 2017 -07x"), None);
    assert_eq!(lastmod("20170603x"), None);
}

#[test]
fn what_is_left_of_a_time_leaves_the_day() {
    let table = [
        // An hour without minutes.
        "2017-06-03T15",
        "2017-06-03T15Z",
        "2017-06-03 15 +0200",
        "20170603T15Z",
        "Sat, 3 Jun 2017 15",
        "Sat, 03 Jun 2017 15 -0700",
        "2017-06-03 15h",
        "2017-06-03 15h UTC",
        "2017-06-03 3 PM",
        "2017-06-03T03pm +0200",
        "3 Jun 2017 3pm",
        "3 Jun 2017 15H",
        // An offset whose sign was lost.
        "2017-06-03T15:04:05 02:00",
        "Sat, 03 Jun 2017 15:04:05 0200",
        "Sat, 03 Jun 2017 15:04:05 00",
    ];
    for text in table {
        let want = Some(("2017-06-03T00:00:00Z".to_owned(), Precision::Day));
        assert_eq!(shown(lastmod(text)), want, "{text}");
    }
    for none in ["2017-06-03T25Z", "2017-06-03T15xx", "Sat, 3 Jun 2017 15304"] {
        assert_eq!(lastmod(none), None, "{none}");
    }
}

#[test]
fn the_june_of_croatian_is_not_the_july_of_polish() {
    for (text, want) in [
        ("3. lipnja 2017.", "2017-06-03"),
        ("3 Lipanj 2017", "2017-06-03"),
        ("3 lipca 2017", "2017-07-03"),
        ("3 lipiec 2017", "2017-07-03"),
        ("pon, 3 lip 2017", "2017-07-03"),
    ] {
        let want = Some((format!("{want}T00:00:00Z"), Precision::Day));
        assert_eq!(shown(feed(text)), want, "{text}");
    }
}

#[test]
fn two_dates_in_one_text_are_none() {
    for none in [
        "12 - 15 Jun 2017",
        "12 - 15 Jun 17",
        "Jun 12 - 15, 2017",
        "12 Jun - 15 Jul 2017",
        "12 Jun - 15 Jul 17",
        "12 Jun 2017 - 15 Jul 2017",
        "12 Jun 2017 to 15 Jul",
        "12 Jun 2017 10:30 - 15 Jul 2017 10:30",
        "12 Jun 2017 2018",
        "12 Jun 10 2017",
    ] {
        assert_eq!(lastmod(none), None, "{none}");
    }
    for one in ["3 juin 2017 à 15 h 30", "3 Jun 2017 15 h 30 min"] {
        let want = Some(("2017-06-03T00:00:00Z".to_owned(), Precision::Day));
        assert_eq!(shown(lastmod(one)), want, "{one}");
    }
}

#[test]
fn a_colon_before_milliseconds_or_the_offset_is_passed_over() {
    let table = [
        ("2017-06-03T15:04:05:250Z", "2017-06-03T15:04:05.25Z"),
        ("2017-06-03 15:04:05:250", "2017-06-03T15:04:05.25Z"),
        ("2017-06-03T15:04:05:+02:00", "2017-06-03T13:04:05Z"),
        ("2017-06-03T15:04:05:-0700", "2017-06-03T22:04:05Z"),
        ("Sat, 03 Jun 2017 15:04:05:250 +0200", "2017-06-03T13:04:05.25Z"),
        ("2017-06-03T15:04:05.Z", "2017-06-03T15:04:05Z"),
        ("2017-06-03T15:04:05.", "2017-06-03T15:04:05Z"),
        ("2017-06-03T15:04:05+02:00:00", "2017-06-03T13:04:05Z"),
    ];
    for (text, want) in table {
        assert_eq!(shown(lastmod(text)).map(|s| s.0).as_deref(), Some(want), "{text}");
    }
    assert_eq!(lastmod("2017-06-03T15:04:05:00"), None);
    assert_eq!(lastmod("2017-06-03T15:04:05+02:00:30"), None);
}

#[test]
fn an_identifier_of_a_zone_right_behind_the_time_leaves_the_day() {
    for zone in ["Europe/Berlin", "America/Port-au-Prince", "Etc/GMT+5", "PST8PDT", " US/Eastern"] {
        let text = format!("2017-06-03T15:04:05{zone}");
        let want = Some(("2017-06-03T00:00:00Z".to_owned(), Precision::Day));
        assert_eq!(shown(lastmod(&text)), want, "{text}");
    }
}

#[test]
fn a_time_is_read_as_it_is_written_in_french() {
    let table = [
        ("3 juin 2017 à 15h30", "2017-06-03T15:30:00Z"),
        ("sam. 3 juin 2017, 9h05 CEST", "2017-06-03T07:05:00Z"),
        ("03/06/2017 à 15h", "2017-03-06T00:00:00Z"),
        ("2017-06-03 15h30", "2017-06-03T15:30:00Z"),
        ("2017-06-03T15H30", "2017-06-03T15:30:00Z"),
    ];
    for (text, want) in table {
        assert_eq!(shown(feed(text)).map(|s| s.0).as_deref(), Some(want), "{text}");
    }
}

#[test]
fn months_are_read_in_greek_hungarian_polish_romanian_and_turkish() {
    let table = [
        ("Κυρ, 11 Ιούλ 2004 12:00:00 EST", "2004-07-11T17:00:00Z"),
        ("11 Μαΐου 2004", "2004-05-11T00:00:00Z"),
        ("ΔΕΥ, 11 ΙΟΥΝ 2004", "2004-06-11T00:00:00Z"),
        ("2004. július 13. 9:15", "2004-07-13T09:15:00Z"),
        ("2004. szept. 13.", "2004-09-13T00:00:00Z"),
        ("wto, 21 lis 2023 08:30:00 +0100", "2023-11-21T07:30:00Z"),
        ("21 października 2023", "2023-10-21T00:00:00Z"),
        ("mar, 21 noi. 2023 08:30:00 +0200", "2023-11-21T06:30:00Z"),
        ("21 Ağustos 2023", "2023-08-21T00:00:00Z"),
        ("21 Şub 2023", "2023-02-21T00:00:00Z"),
        ("Paz, 21 May 2023", "2023-05-21T00:00:00Z"),
    ];
    for (text, want) in table {
        assert_eq!(shown(feed(text)).map(|s| s.0).as_deref(), Some(want), "{text}");
    }
}

#[test]
fn points_with_blanks_behind_them_are_between_year_month_and_day() {
    let table = [
        ("2023. 11. 21.", "2023-11-21T00:00:00Z"),
        ("2023. 6. 5. 10:30:05", "2023-06-05T10:30:05Z"),
        ("2023.06.05. 10:30", "2023-06-05T10:30:00Z"),
        ("2023.11.21", "2023-11-21T00:00:00Z"),
    ];
    for (text, want) in table {
        assert_eq!(shown(lastmod(text)).map(|s| s.0).as_deref(), Some(want), "{text}");
    }
    assert_eq!(lastmod("2023- 11- 21"), None);
}

#[test]
fn feed_dates_are_read_whatever_their_order() {
    let table = [
        ("Thu, 17 Dec 2009 12:04:56 +0200", "2009-12-17T10:04:56Z"),
        ("05 Jan 17 12:34:53 GMT", "2017-01-05T12:34:53Z"),
        ("Mon, 06 Sep 2009 16:45 +0000 ", "2009-09-06T16:45:00Z"),
        ("Sunday, 06 September 2009 16:45:00 EST", "2009-09-06T21:45:00Z"),
        ("Sat, 03 Jun 2017 15:15:44 -05:00", "2017-06-03T20:15:44Z"),
        ("Sat Jun  3 15:15:44 2017", "2017-06-03T15:15:44Z"),
        ("Sat Jun 3 15:15:44 PDT 2017", "2017-06-03T22:15:44Z"),
        ("Sat, 03 Jun 2017 15:15:44 Etc/GMT", "2017-06-03T15:15:44Z"),
        ("Sat, 03 Jun 2017 15:15:44 N", "2017-06-03T15:15:44Z"),
        ("Sat, 03 Jun 2017 3:15 p", "2017-06-03T00:00:00Z"),
        ("3 mrt 2017", "2017-03-03T00:00:00Z"),
        ("31-12-99", "1999-12-31T00:00:00Z"),
        ("12-31-17", "2017-12-31T00:00:00Z"),
        ("June 3, 2017", "2017-06-03T00:00:00Z"),
        ("3 juin 2017 10:00", "2017-06-03T10:00:00Z"),
        ("03-Jun-2017", "2017-06-03T00:00:00Z"),
        ("6/3/2017 3:15:44 PM", "2017-06-03T15:15:44Z"),
        ("Sat, 03 Jun 2017 03:15:44 p.m. GMT", "2017-06-03T15:15:44Z"),
        ("June 3, 2017 3:15 P.M. EST", "2017-06-03T20:15:00Z"),
        ("21. marraskuuta 2023", "2023-11-21T00:00:00Z"),
        ("21. maaliskuuta 2023", "2023-03-21T00:00:00Z"),
        ("Mon, 15 Jan 2024 22:30:00 -0300 -03", "2024-01-16T01:30:00Z"),
        ("Mon Jan 15 22:30:00 -0300 -03 2024", "2024-01-16T01:30:00Z"),
        ("30.06.2017 15:15", "2017-06-30T15:15:00Z"),
        ("Sat, 3rd Jun 2017 15:15:44 GMT (summer)", "2017-06-03T15:15:44Z"),
        ("Sat, 03 Jun 2017 15:15:44 GMT+2", "2017-06-03T13:15:44Z"),
        ("Sat, 03 Jun 2017 15:15:44 GMT-05:00", "2017-06-03T20:15:44Z"),
        ("Sat, 03 Jun 2017 15:15:44 UTC-5", "2017-06-03T20:15:44Z"),
        ("Sat, 03 Jun 2017 15:15:44Z", "2017-06-03T15:15:44Z"),
        ("2017-06-03T15:15:44.250-05:00", "2017-06-03T20:15:44.25Z"),
    ];
    for (text, at) in table {
        assert_eq!(shown(feed(text)).map(|s| s.0).as_deref(), Some(at), "{text}");
    }
    assert_eq!(feed("Sat, 32 Jun 2017 15:15:44 GMT"), None);
    assert_eq!(feed("Tue, 15 Sep 2026 10/30/00"), None);
    assert_eq!(feed("yesterday at noon"), None);
}

#[test]
fn a_weekday_that_looks_like_a_month_is_none() {
    let table = [
        ("mar. 24 févr. 2026 10:00:00 +0100", "2026-02-24T09:00:00Z"),
        ("Mardi, 15 septembre 2026 10:00", "2026-09-15T10:00:00Z"),
        ("martedì, 6 giugno 2017 10:00", "2017-06-06T10:00:00Z"),
        ("martes, 06 junio 2017", "2017-06-06T00:00:00Z"),
        ("Maandag, 15 juni 2026 10:00:00 +0200", "2026-06-15T08:00:00Z"),
        ("Mar Giu 06 10:00:00 2017", "2017-06-06T10:00:00Z"),
        ("mar. 24.02.2026 10:00", "2026-02-24T10:00:00Z"),
        ("mar 24/02/26", "2026-02-24T00:00:00Z"),
        ("mar. 3 mars 2026", "2026-03-03T00:00:00Z"),
        ("Mar 5, 2026", "2026-03-05T00:00:00Z"),
        ("5 mar 2026", "2026-03-05T00:00:00Z"),
        ("March 5, 2026", "2026-03-05T00:00:00Z"),
        ("Thu Mar 5 10:00:00 MAGT 2026", "2026-03-05T00:00:00Z"),
    ];
    for (text, at) in table {
        assert_eq!(shown(feed(text)).map(|s| s.0).as_deref(), Some(at), "{text}");
    }
}

#[test]
fn a_clock_with_points_is_no_second_date() {
    let table = [
        ("Tue, 15 Sep 2026 10.30.00 GMT", "2026-09-15T10:30:00Z"),
        ("15. Sep 2026 10.30 +0200", "2026-09-15T08:30:00Z"),
        ("15.09.2026 9.30", "2026-09-15T09:30:00Z"),
        ("Sep 15. 10.30.05 2026", "2026-09-15T10:30:05Z"),
        ("15.09.26", "2026-09-15T00:00:00Z"),
        ("Tue, 15-Sep-26 10:30:00 GMT", "2026-09-15T10:30:00Z"),
    ];
    for (text, at) in table {
        assert_eq!(shown(feed(text)).map(|s| s.0).as_deref(), Some(at), "{text}");
    }
}

#[test]
fn russian_months_are_known_in_every_form() {
    for (month, names) in [
        "янв января",
        "фев февраля",
        "мар марта",
        "апр апреля",
        "май мая",
        "июн июня",
        "июл июля",
        "авг августа",
        "сен сентября",
        "окт октября",
        "ноя ноября",
        "дек декабря",
    ]
    .iter()
    .enumerate()
    {
        for name in names.split(' ') {
            let want = format!("2026-{:02}-05T00:00:00Z", month + 1);
            let text = format!("Чт, 5 {name} 2026");
            assert_eq!(shown(feed(&text)).map(|s| s.0), Some(want), "{text}");
        }
    }
}

#[test]
fn finnish_months_are_known_in_every_form() {
    for (month, stem) in [
        "tammi", "helmi", "maalis", "huhti", "touko", "kesä", "heinä", "elo", "syys", "loka",
        "marras", "joulu",
    ]
    .iter()
    .enumerate()
    {
        for end in ["", ".", "k", "k.", "kuu", "kuuta", "kuun"] {
            for text in [format!("ti 5. {stem}{end} 2026"), format!("{stem}{end} 5, 2026")] {
                let want = format!("2026-{:02}-05T00:00:00Z", month + 1);
                assert_eq!(shown(feed(&text)).map(|s| s.0), Some(want), "{text}");
            }
        }
    }
    for (text, month) in [("5 mar 2026", 3), ("5 maart 2026", 3), ("5. Mär 2026", 3)] {
        let want = format!("2026-{month:02}-05T00:00:00Z");
        assert_eq!(shown(feed(text)).map(|s| s.0), Some(want), "{text}");
    }
    assert_eq!(feed("5 elongated 2026"), None);
}

#[test]
fn an_unknown_zone_leaves_the_day_and_no_hour() {
    let found = feed("Sat, 03 Jun 2017 15:15:44 XQZT");
    assert_eq!(shown(found), Some(("2017-06-03T00:00:00Z".to_owned(), Precision::Day)));
}

#[test]
fn the_three_forms_of_http_are_the_same_instant() {
    let forms = [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
    ];
    for text in forms {
        assert_eq!(http(text).map(Timestamp::as_second), Some(784_111_777), "{text}");
    }
    for text in ["", "0", "120", "1994-11-06T08:49:37Z", "Sun, 06 Nov 1994", "soon"] {
        assert_eq!(http(text), None, "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(text in "\\PC{0,60}") {
        let _ = (lastmod(&text), feed(&text), http(&text));
    }

    #[test]
    fn what_looks_like_a_date_never_panics(
        text in "[0-9]{1,5}[-/. ][0-9A-Za-z]{1,4}[-/. ][0-9]{0,4}[T ]?[0-9:.]{0,12} ?[-+A-Z0-9:]{0,6}"
    ) {
        let _ = (lastmod(&text), feed(&text), http(&text));
    }

    #[test]
    fn the_quick_reader_says_what_the_general_one_says(
        text in "[0-9]{4}-[01][0-9]-[0-3][0-9](T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](Z|[-+][0-2][0-9]:[0-7][0-9]))?"
    ) {
        if let Some(found) = usual(text.as_bytes()) {
            proptest::prop_assert_eq!(Some(found), general(&text));
        } else {
            proptest::prop_assert_eq!(general(&text), None);
        }
    }

    #[test]
    fn a_second_survives_being_written_and_read(second in 631_152_000_i64..4_000_000_000) {
        let at = Timestamp::from_second(second).expect("in range");
        let found = lastmod(&at.to_string());
        proptest::prop_assert_eq!(found, Some(Lastmod { at, precision: Precision::Second }));
    }
}
