//! The lines of a document that its defects are in, to be shown beside them.
//!
//! Reads the document once more, through the same window; what is kept is a
//! piece of a line for each place asked for.

use std::io::Read;

use super::issue::printable;
use super::text::{Text, WINDOW};

/// Bytes looked at before and behind a place.
const AROUND: usize = 1_024;

/// A piece of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// Safe to print; what was cut off is shown as `…`.
    pub text: String,
    /// Is anything of the line cut off?
    pub cut: bool,
}

/// The line at each of these bytes of the decoded document, at most `width`
/// characters of it; nothing for a byte that is not there.
pub fn excerpts(
    reader: &mut dyn Read,
    content_type: Option<&str>,
    offsets: &[u64],
    width: usize,
) -> Vec<Option<Excerpt>> {
    let mut text = Text::new(reader, content_type);
    let mut order: Vec<usize> = (0..offsets.len()).collect();
    order.sort_by_key(|index| offsets.get(*index).copied());
    let mut found = vec![None; offsets.len()];
    for index in order {
        let Some(offset) = offsets.get(index).copied() else { continue };
        go_to(&mut text, offset.saturating_sub(AROUND as u64));
        text.fill(2 * AROUND + 4);
        let at = usize::try_from(offset.saturating_sub(text.offset())).unwrap_or(usize::MAX);
        let starts_here = text.offset() == 0;
        if let (Some(slot), Some(excerpt)) =
            (found.get_mut(index), around(text.rest(), at, starts_here, width))
        {
            *slot = Some(excerpt);
        }
    }
    found
}

/// Uses the text up to a byte, or up to the character that it is in.
fn go_to(text: &mut Text<'_>, offset: u64) {
    while text.offset() < offset {
        text.fill(WINDOW);
        let wanted = usize::try_from(offset - text.offset()).unwrap_or(usize::MAX);
        let rest = text.rest();
        let limit = wanted.min(rest.len());
        let step = (0..=limit).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(0);
        if step == 0 {
            return;
        }
        text.consume(step);
    }
}

/// The line at a byte of `text`; `starts_here` says that nothing is before it.
fn around(text: &str, at: usize, starts_here: bool, width: usize) -> Option<Excerpt> {
    let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at))?;
    if at == text.len() && text.is_empty() {
        return None;
    }
    let (before, after) = text.split_at(at);
    let first = before.rfind(['\n', '\r']).map(|end| end + 1);
    let last = after.find(['\n', '\r']);
    let line_before = before.get(first.unwrap_or(0)..)?.trim_start();
    let line_after = after.get(..last.unwrap_or(after.len()))?.trim_end();
    // Most of what matters follows the place.
    let room_before = width / 4;
    let chars_before = line_before.chars().count();
    let mut cut = first.is_none() && !starts_here;
    let mut line = String::new();
    let skip = if chars_before + line_after.chars().count() > width {
        chars_before.saturating_sub(room_before)
    } else {
        0
    };
    if skip > 0 || cut {
        line.push('…');
        cut = true;
    }
    line.extend(line_before.chars().skip(skip));
    line.push_str(line_after);
    let too_long = line.chars().count() > width || last.is_none() && after.len() > AROUND;
    if too_long {
        line = line.chars().take(width.saturating_sub(1)).collect();
        line.push('…');
    }
    Some(Excerpt { text: printable(&line), cut: cut || too_long })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(document: &str, offsets: &[u64], width: usize) -> Vec<Option<String>> {
        excerpts(&mut document.as_bytes(), None, offsets, width)
            .into_iter()
            .map(|excerpt| excerpt.map(|excerpt| excerpt.text))
            .collect()
    }

    #[test]
    fn the_line_of_a_place_is_shown_without_its_blanks() {
        let document = "first\r\n  second one \nthird";
        let shown = |text: &str| Some(text.to_owned());
        assert_eq!(
            at(document, &[22, 0, 10, 7], 40),
            [shown("third"), shown("first"), shown("second one"), shown("second one")]
        );
        assert_eq!(at("", &[0], 40), [None]);
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let document = format!("{}HERE{}", "a".repeat(200_000), "b".repeat(200_000));
        let shown = at(&document, &[200_000], 40)[0].clone().expect("a line");
        assert!(shown.chars().count() <= 40 && shown.contains("HERE"), "{shown}");
        assert!(shown.starts_with('…') && shown.ends_with('…'), "{shown}");
    }

    proptest::proptest! {
        #[test]
        fn no_place_makes_it_panic(document in "[a-zé\n\r ]{0,60}", places: Vec<u16>, width in 1_usize..50) {
            let offsets: Vec<u64> = places.iter().map(|place| u64::from(*place % 80)).collect();
            for excerpt in at(&document, &offsets, width).into_iter().flatten() {
                proptest::prop_assert!(excerpt.chars().count() <= width);
            }
        }
    }
}
