//! Makes Rust of the protocol that `src/serve/frontier/` speaks, without protoc:
//! the types, the server's side, and the description that reflection serves.

use std::error::Error;
use std::path::PathBuf;

use prost_types::FileDescriptorSet;

const PROTO: &str = "proto/urlfrontier.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).open_file("urlfrontier.proto")?;
    let set: FileDescriptorSet = compiler.file_descriptor_set();
    std::fs::write(out.join("urlfrontier.bin"), compiler.encode_file_descriptor_set())?;
    // The comments are of a file of the protocol, not of documentation.
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .disable_comments(["."])
        .compile_fds(set)?;
    Ok(())
}
