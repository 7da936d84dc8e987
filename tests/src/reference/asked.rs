//! Views with their options: as the command line has them, and the documents that the reference expects.

use serde_json::Value;

use super::groups::{Shape, Sort};
use super::keys::{self, Key};
use super::pairs::Pairs;
use super::{Known, documents, failed, groups, growth, leaks, machine};
use crate::generate::Random;

/// Areas of source files: what is grouped by area must have some.
const AREAS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/areas.txt");

/// View of one trace with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Name of the view.
    pub view: &'static str,
    /// Keys of `--by`, if given.
    pub by: Option<Vec<Key>>,
    /// `--objects` of `live`.
    pub objects: bool,
    /// Options `--sort` and `--top`; in views of groups only.
    pub shape: Shape,
}

impl Asked {
    /// View without options.
    pub fn view(view: &'static str) -> Asked {
        Asked { view, by: None, objects: false, shape: Shape::default() }
    }

    /// The same with `--by`.
    pub fn by(self, keys: &[Key]) -> Asked {
        Asked { by: Some(keys.to_vec()), ..self }
    }

    /// The same with `--objects`.
    pub fn objects(self) -> Asked {
        Asked { objects: true, ..self }
    }

    /// Any view of groups, with any options.
    pub fn random(random: &mut Random) -> Asked {
        let view = *random.pick(&["sites", "sites", "sites", "caches", "live", "live", "growth"]);
        let mut keys: Vec<Key> = Vec::new();
        for _ in 0..1 + random.below(3) {
            let key = *random.pick(&Key::ALL);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let sorts: &[Sort] = match view {
            "sites" | "caches" => &Sort::OF_FIGURES,
            "live" => &Sort::OF_LIVE,
            _ => &[],
        };
        let mut shape = Shape::default();
        if !sorts.is_empty() && random.chance(60) {
            shape.sort = (0..1 + random.below(2)).map(|_| *random.pick(sorts)).collect();
        }
        if view == "sites" || view == "caches" {
            shape.top = random.chance(30).then(|| 1 + random.below(6) as usize);
        }
        let by = (view != "caches" && random.chance(80)).then_some(keys);
        Asked { view, by, objects: false, shape }
    }

    /// Words of the command line, the view first.
    pub fn arguments(&self) -> Vec<String> {
        let mut words = vec![self.view.to_owned()];
        if let Some(keys) = &self.by {
            words.extend(["--by".to_owned(), keys::words(keys).join(",")]);
            if keys.contains(&Key::Area) {
                words.extend(["--areas".to_owned(), AREAS.to_owned()]);
            }
        }
        if self.objects {
            words.push("--objects".to_owned());
        }
        if !self.shape.sort.is_empty() {
            let sorts: Vec<&str> = self.shape.sort.iter().map(|sort| sort.word).collect();
            words.extend(["--sort".to_owned(), sorts.join(",")]);
        }
        if let Some(top) = self.shape.top {
            words.extend(["--top".to_owned(), top.to_string()]);
        }
        words
    }

    /// Document that the reference expects.
    ///
    /// # Panics
    /// If the reference has no such view.
    pub fn document(&self, known: &Known, pairs: &Pairs) -> Value {
        let keys = self.by.as_deref().unwrap_or(&[Key::Site]);
        match self.view {
            "summary" => documents::summary(known, pairs),
            "sites" => groups::sites_by(known, pairs, keys, &self.shape),
            "caches" => groups::caches(known, pairs, &self.shape),
            "leaks" => leaks::leaks(known, self.by.as_deref()),
            "mismatch" => documents::mismatch(known, pairs),
            "balance" => machine::balance(known, pairs),
            "failed" => failed::failed(known, pairs),
            "live" if self.objects => documents::live_objects(known, pairs),
            "live" => groups::live_by(known, pairs, keys, &self.shape),
            "cross" => documents::cross(known, pairs),
            "growth" => growth::growth(known, pairs, keys),
            other => panic!("{other}: not a view of the reference"),
        }
    }
}
