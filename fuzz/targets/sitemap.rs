//! Holds bytes against the law of `sitemap`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sitemapd_fuzz::support::laws::hold_in_part(
    "sitemap", data
));
