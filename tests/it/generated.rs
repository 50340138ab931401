//! The Rust of the protocol that `src/serve/frontier.rs` speaks is what the definition in
//! `proto/` says: the types, the server's side, and the description that reflection
//! serves. It is kept, so that nobody who builds the program needs what makes it.

use std::fs;
use std::path::Path;

/// Set to anything, it writes what it would compare with.
const WRITE: &str = "SITEMAPD_GENERATE";

/// What reads messages.
const CODEC: &str = "crate::serve::frontier::codec::Bounded";

#[test]
fn what_is_kept_of_the_protocol_is_what_its_definition_says() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let made = tempfile::tempdir().unwrap();
    let mut compiler = protox::Compiler::new([&proto]).unwrap();
    compiler.include_source_info(true).open_file("urlfrontier.proto").unwrap();
    let described = compiler.encode_file_descriptor_set();
    fs::write(made.path().join("urlfrontier.bin"), described).unwrap();
    // The comments are of a file of the protocol, not of documentation.
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .disable_comments(["."])
        .out_dir(made.path())
        .compile_fds(compiler.file_descriptor_set())
        .unwrap();
    for name in ["urlfrontier.rs", "urlfrontier.bin"] {
        let (mut made, kept) = (fs::read(made.path().join(name)).unwrap(), proto.join(name));
        if let Ok(text) = std::str::from_utf8(&made) {
            // Messages are bounded before they are read.
            made = text.replace("tonic_prost::ProstCodec", CODEC).into_bytes();
        }
        if std::env::var_os(WRITE).is_some() {
            fs::write(&kept, &made).unwrap();
        }
        let is_same = fs::read(&kept).unwrap() == made;
        assert!(is_same, "proto/{name} is another: cargo test generated with {WRITE}=1 writes it");
    }
}
