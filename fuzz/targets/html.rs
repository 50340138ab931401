//! Holds bytes against the law of `html`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sitemapd_fuzz::support::laws::hold_in_part(
    "html", data
));
