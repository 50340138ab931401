//! Bytes packed in every way that an origin may send them.

use async_compression::codecs::brotli::params::EncoderParams;
use async_compression::codecs::{
    BrotliEncoder, DeflateEncoder, EncodeV2, GzipEncoder, ZlibEncoder, ZstdEncoder,
};
use async_compression::core::Level;
use async_compression::core::util::{PartialBuffer, WriteBuffer};

/// One gzip member.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    run(GzipEncoder::new(Level::Default.into()), bytes)
}

/// One brotli stream.
pub fn brotli(bytes: &[u8]) -> Vec<u8> {
    run(BrotliEncoder::new(EncoderParams::default()), bytes)
}

/// One zstd frame.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    run(ZstdEncoder::new(3), bytes)
}

/// `deflate` as the standard has it.
pub fn zlib(bytes: &[u8]) -> Vec<u8> {
    run(ZlibEncoder::new(Level::Default.into()), bytes)
}

/// `deflate` as some servers send it.
pub fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
    run(DeflateEncoder::new(Level::Default.into()), bytes)
}

fn run(mut encoder: impl EncodeV2, bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut input = PartialBuffer::new(bytes);
    let mut out = [0; 8 * 1024];
    while !input.unwritten().is_empty() {
        let mut output = WriteBuffer::new_initialized(&mut out);
        encoder.encode(&mut input, &mut output).unwrap();
        packed.extend_from_slice(output.written());
    }
    loop {
        let mut output = WriteBuffer::new_initialized(&mut out);
        let done = encoder.finish(&mut output).unwrap();
        packed.extend_from_slice(output.written());
        if done {
            return packed;
        }
    }
}
