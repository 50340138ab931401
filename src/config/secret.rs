//! Secrets that stand in files of their own.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Bytes of such a file that are looked at; a token is one short line.
const MAX_BYTES: u64 = 4096;

/// The first line of a file, which is a token or a password: the same to whoever
/// asks for it and to whoever is asked. The error is a clause that says what is
/// wrong with the file.
pub fn first_line(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| "its first line is not UTF-8")?.trim();
    if line.is_empty() { Err("its first line is empty".to_owned()) } else { Ok(line.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_first_line_of_its_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let read = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).expect("written");
            first_line(file.path())
        };
        for text in ["t", "t\n", " t\r\nold\n", "t\nold\nolder"] {
            assert_eq!(read(text.as_bytes()).as_deref(), Ok("t"), "{text:?}");
        }
        assert_eq!(read(b"t\n\xff").as_deref(), Ok("t"));
        for bytes in [&b""[..], b"\n", b" \nt\n"] {
            assert_eq!(read(bytes).unwrap_err(), "its first line is empty", "{bytes:?}");
        }
        assert_eq!(read(b"\xff\n").unwrap_err(), "its first line is not UTF-8");
        assert!(first_line(Path::new("/no/such/token")).is_err());
    }
}
