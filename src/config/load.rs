//! From files and the environment to a [`Config`].
//!
//! The only part of the configuration that reads files. A configuration is
//! whole or it is refused: nothing is taken from one that has a fault.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;
use std::sync::Arc;

use toml::Spanned;

use super::document::Document;
use super::env::Env;
use super::error::{ConfigError, Fault, MAX_FAULTS, Place};
use super::glob::Glob;
use super::raw::{Leaf, RawConfig, RawInclude, RawSite, Shape};
use super::read::{Reader, strings};
use super::{Config, resolve, site};

/// Most bytes of one config file; a hundred thousand sites fit in it.
const MAX_FILE_BYTES: u64 = 256 << 20;

impl Config {
    /// Reads the config file at `path`, the files that it includes, and the
    /// overrides of `env`. Relative paths in it are relative to its folder.
    pub fn load(path: &Path, env: &Env) -> Result<Self, ConfigError> {
        let text = read_file(path)?;
        let base = path.parent().unwrap_or(Path::new("")).to_owned();
        from_text(path, &base, &text, env)
    }

    /// Reads a configuration from a string, without an environment; paths in
    /// it are relative to the current folder.
    pub fn from_toml_str(text: &str) -> Result<Self, ConfigError> {
        from_text(Path::new("config"), Path::new(""), text, &Env::empty())
    }

    /// No file at all: the defaults and the overrides of `env`.
    pub fn from_env(env: &Env) -> Result<Self, ConfigError> {
        from_text(Path::new("defaults"), Path::new(""), "", env)
    }
}

/// The sites read so far, and the faults.
struct Gathered {
    sites: BTreeMap<String, Arc<super::Site>>,
    faults: Vec<Fault>,
}

fn from_text(path: &Path, base: &Path, text: &str, env: &Env) -> Result<Config, ConfigError> {
    let (document, raw): (_, RawConfig) =
        Document::parse(path, text, env, &Shape::of_config()).map_err(invalid)?;
    let mut reader = Reader::new(&document, base);
    let mut config = resolve::sections(&raw, env, &mut reader);
    let included = included_files(&raw.include, &mut reader);
    let mut gathered = Gathered { sites: BTreeMap::new(), faults: Vec::new() };
    gathered.add(&raw.site, &config, env, &mut reader);
    gathered.faults.append(&mut reader.into_faults());
    let shape = Shape::of_include();
    for path in included {
        let text = read_file(&path)?;
        let parsed = Document::parse::<RawInclude>(&path, &text, &Env::empty(), &shape);
        match parsed {
            Ok((document, raw)) => {
                let mut reader = Reader::new(&document, base);
                gathered.add(&raw.site, &config, env, &mut reader);
                gathered.faults.append(&mut reader.into_faults());
            }
            Err(mut faults) => gathered.faults.append(&mut faults),
        }
    }
    if !gathered.faults.is_empty() {
        return Err(invalid(gathered.faults));
    }
    config.sites = gathered.sites;
    Ok(config)
}

impl Gathered {
    fn add(
        &mut self,
        sites: &[Spanned<RawSite>],
        config: &Config,
        env: &Env,
        reader: &mut Reader<'_>,
    ) {
        for raw in sites {
            let Some(site) = site::site(raw, config, env, reader) else { continue };
            if self.sites.contains_key(&site.name) {
                let message = format!("found {:?} again, allowed is a name of its own", site.name);
                reader.fault_at(&[&raw.get_ref().name], message);
                continue;
            }
            self.sites.insert(site.name.clone(), Arc::new(site));
        }
    }
}

fn invalid(mut faults: Vec<Fault>) -> ConfigError {
    faults.truncate(MAX_FAULTS);
    ConfigError::Invalid(faults)
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let bytes = fs::metadata(path).map_err(failed)?.len();
    if bytes > MAX_FILE_BYTES {
        let message = format!("{bytes} bytes, allowed are {MAX_FILE_BYTES}");
        return Err(failed(std::io::Error::other(message)));
    }
    String::from_utf8(fs::read(path).map_err(failed)?).map_err(|error| not_utf8(path, &error))
}

/// Names the line of the first byte that is no UTF-8.
fn not_utf8(path: &Path, error: &FromUtf8Error) -> ConfigError {
    let before = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
    let line = before.filter(|byte| **byte == b'\n').count() + 1;
    let place = Place::File { path: path.to_owned(), line };
    let message = "not valid UTF-8; save the file as UTF-8".to_owned();
    invalid(vec![Fault { place, key: String::new(), message }])
}

/// The files that `include` names, in the order of its lines and, within
/// one, of the names. Only the last component of a line may hold wildcards.
fn included_files(leaf: &Leaf, reader: &mut Reader<'_>) -> Vec<PathBuf> {
    let base = reader.base.to_owned();
    let files = reader.read(leaf, |value| {
        let mut files = Vec::new();
        for line in strings(value)? {
            let found = expand(&base, line).map_err(|e| format!("of which {line:?}: {e}"))?;
            files.extend(found);
        }
        Ok(files)
    });
    files.unwrap_or_default()
}

fn expand(base: &Path, line: &str) -> Result<Vec<PathBuf>, String> {
    let path = base.join(line);
    let folders = Path::new(line).parent().unwrap_or(Path::new("")).to_string_lossy();
    if folders.contains(['*', '?']) {
        return Err("allowed are wildcards in the last part of the path only".to_owned());
    }
    let pattern = path.file_name().and_then(|name| name.to_str()).ok_or("names no file")?;
    if !pattern.contains(['*', '?']) {
        let found = path.is_file().then(|| vec![path.clone()]);
        return found.ok_or_else(|| format!("there is no file {}", path.display()));
    }
    // A config named by its bare file name has an empty folder: the current one,
    // which can be listed under no name but this.
    let above = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = above.unwrap_or(Path::new("."));
    let glob = Glob::new(pattern)?;
    let unread = |error| format!("the folder {} cannot be read: {error}", folder.display());
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // A folder that is not there yet holds no sites yet.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        // Of one that cannot be read nobody knows: its sites may all be there still.
        Err(error) => return Err(unread(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = path.with_file_name(entry.map_err(unread)?.file_name());
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| glob.matches(name)) && is_file(&path)? {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Is a file there? Links that lead nowhere are what editors lock files with.
fn is_file(path: &Path) -> Result<bool, String> {
    match fs::metadata(path) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
    }
}
