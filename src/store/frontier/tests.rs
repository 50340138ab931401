//! Laws of where a URL is, whatever a client writes.

use proptest::prelude::*;

use super::super::hosts::{name_of, page_text};
use super::put::spot_of;
use crate::url::identities;

proptest! {
    #[test]
    fn whatever_a_client_writes_has_one_place_or_none(
        key in proptest::option::of("\\PC{0,300}"),
        scheme in "(http|https|HTTP|ftp)",
        rest in "[a-zA-Z0-9.:\\[\\]@/?#%é -]{0,60}",
    ) {
        let text = format!("{scheme}://{rest}");
        let Some(spot) = spot_of(key.as_deref(), &text) else { return Ok(()) };
        let shown = page_text(&spot.authority, &spot.path);
        let normalised = identities(&spot.listed).pop().map(String::from);
        prop_assert_eq!(Some(&shown), normalised.as_ref());
        // What is shown of it leads to the same place, under the name of its queue.
        let name = name_of(&spot.authority).to_owned();
        let again = spot_of(Some(&name), &shown);
        let again = again.map(|again| (again.authority, again.path));
        prop_assert_eq!(again, Some((spot.authority, spot.path)));
    }
}
