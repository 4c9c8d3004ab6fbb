//! The recipe of the sandbox image: the files of `images/python`, carried in the binary.
//!
//! Owns what a build context holds and how a recipe is named by its content. Touches neither the
//! file system nor the engine.

use sha2::{Digest, Sha256};

/// The repository of our own images.
const REPOSITORY: &str = "fumehood/python";
/// How much of the digest a tag shows.
const TAG_LENGTH: usize = 16;
/// Where the scripts of the recipe look for the bundle.
const CA_BUNDLE: &str = "ca-certificates.crt";

/// One file of the recipe.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecipeFile {
    name: &'static str,
    content: &'static str,
}

/// All files that decide what is in the image.
pub(super) const FILES: &[RecipeFile] = &[
    RecipeFile {
        name: "Dockerfile",
        content: include_str!("../../../../images/python/Dockerfile"),
    },
    RecipeFile {
        name: "requirements.txt",
        content: include_str!("../../../../images/python/requirements.txt"),
    },
    RecipeFile {
        name: "install-packages.sh",
        content: include_str!("../../../../images/python/install-packages.sh"),
    },
    RecipeFile {
        name: "make-root.sh",
        content: include_str!("../../../../images/python/make-root.sh"),
    },
    RecipeFile {
        name: "check.py",
        content: include_str!("../../../../images/python/check.py"),
    },
];

/// The reference of the image that this version of fumehood builds and uses. The tag names the
/// content of the recipe, so that an image of another version is never taken for it.
pub fn default_reference() -> String {
    reference_of(&digest(FILES))
}

fn reference_of(digest: &str) -> String {
    let tag = digest.get(..TAG_LENGTH).unwrap_or(digest);
    format!("{REPOSITORY}:{tag}")
}

/// SHA-256 over names, lengths and contents, in hexadecimal.
pub(super) fn digest(files: &[RecipeFile]) -> String {
    let mut hash = Sha256::new();
    for file in files {
        for part in [file.name, file.content] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hex::encode(hash.finalize())
}

/// The build context as an uncompressed tar archive; the same input gives the same bytes.
pub(super) fn context(files: &[RecipeFile], ca_bundle: Option<&[u8]>) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let ca_bundle = ca_bundle.map(|bytes| (CA_BUNDLE, bytes));
    let files = files
        .iter()
        .map(|file| (file.name, file.content.as_bytes()));
    for (name, content) in files.chain(ca_bundle) {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, content)?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    fn unpack(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            found.insert(name, content);
        }
        found
    }

    #[test]
    fn the_reference_is_stable_and_well_formed() {
        let reference = default_reference();
        assert_eq!(reference, default_reference());
        let tag = reference.strip_prefix("fumehood/python:").unwrap();
        assert_eq!(tag.len(), TAG_LENGTH);
        assert!(tag.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn the_digest_follows_names_contents_and_their_boundary() {
        let file = |name, content| RecipeFile { name, content };
        let digests = [
            digest(&[file("a", "bc")]),
            digest(&[file("ab", "c")]),
            digest(&[file("a", "bd")]),
            digest(&[file("a", "bc"), file("", "")]),
        ];
        let different: std::collections::BTreeSet<_> = digests.iter().collect();
        assert_eq!(different.len(), digests.len());
    }

    #[test]
    fn the_context_holds_the_recipe_and_nothing_else() {
        let found = unpack(&context(FILES, None).unwrap());
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        let mut expected: Vec<_> = FILES.iter().map(|file| file.name).collect();
        expected.sort_unstable();
        assert_eq!(names, expected);
        for file in FILES {
            assert_eq!(found[file.name], file.content.as_bytes());
        }
    }

    #[test]
    fn a_ca_bundle_is_added_under_the_name_the_recipe_looks_for() {
        let found = unpack(&context(FILES, Some(b"certificates")).unwrap());
        assert_eq!(found[CA_BUNDLE], b"certificates");
        assert_eq!(found.len(), FILES.len() + 1);
    }

    #[test]
    fn the_context_is_reproducible() {
        assert_eq!(context(FILES, None).unwrap(), context(FILES, None).unwrap());
    }

    #[test]
    fn every_file_the_dockerfile_copies_is_in_the_context() {
        let dockerfile = FILES.iter().find(|file| file.name == "Dockerfile").unwrap();
        let copied = dockerfile
            .content
            .lines()
            .filter(|line| line.starts_with("COPY ") && !line.contains("--from"))
            .flat_map(|line| line.split_whitespace().skip(1))
            .filter(|word| !word.ends_with('/') && !word.contains('['));
        for name in copied {
            assert!(
                FILES.iter().any(|file| file.name == name),
                "{name} is missing"
            );
        }
    }
}
