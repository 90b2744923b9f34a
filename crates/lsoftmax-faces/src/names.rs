//! Names of people, however they are spelled.

use deunicode::deunicode;
use serde::Serialize;
use strsim::damerau_levenshtein;

/// A name without accents, case, punctuation and order of its words.
///
/// ```
/// use lsoftmax_faces::{NameMatch, NormalisedName};
/// let name = |text| NormalisedName::new(text);
/// let lfw = name("Catherine_Zeta-Jones");
/// assert_eq!(name("catherine zeta jones").matches(&lfw), Some(NameMatch::Same));
/// assert_eq!(name("pins_Catherine Zetajones").matches(&lfw), Some(NameMatch::Same));
/// assert_eq!(name("Katherine Zeta Jones").matches(&lfw), Some(NameMatch::Similar));
/// assert_eq!(name("Penélope Cruz").matches(&lfw), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NormalisedName {
    words: Vec<String>,
}

/// How two names agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NameMatch {
    /// The same words, in any order, or the same letters; the first may begin with the name of a source.
    Same,
    /// Not the same, but so similar that it may be a misspelling.
    Similar,
}

impl NormalisedName {
    /// The words of a name, in lower-case ASCII.
    pub fn new(name: &str) -> Self {
        let ascii = deunicode(name).to_lowercase();
        let words =
            ascii.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        Self { words: words.map(str::to_owned).collect() }
    }

    /// The name without its first word.
    pub fn without_source(&self) -> Self {
        Self { words: self.words.iter().skip(1).cloned().collect() }
    }

    /// The letters, without spaces.
    fn letters(&self) -> String {
        self.words.concat()
    }

    /// Whether this is the name of another person, with or without a source in front: `pins_Adriana Lima` is
    /// `Adriana_Lima`. A name of digits is nobody's.
    pub fn matches(&self, other: &Self) -> Option<NameMatch> {
        let forms = [self.clone(), self.without_source()];
        let is_name =
            |name: &Self| name.words.iter().any(|word| !word.bytes().all(|c| c.is_ascii_digit()));
        let forms = forms.iter().filter(|form| is_name(form));
        let theirs = other.letters();
        let agreement = |form: &Self| {
            let (mut ours, mut others) = (form.words.clone(), other.words.clone());
            ours.sort_unstable();
            others.sort_unstable();
            let letters = form.letters();
            // A longer name may have more slips; in a short one, one slip makes another name.
            let slips = match letters.len().min(theirs.len()) {
                0..9 => 0,
                9..14 => 1,
                14.. => 2,
            };
            if ours == others || letters == theirs {
                Some(NameMatch::Same)
            } else if letters.len().abs_diff(theirs.len()) <= slips
                && damerau_levenshtein(&letters, &theirs) <= slips
            {
                Some(NameMatch::Similar)
            } else {
                None
            }
        };
        let found: Vec<NameMatch> = forms.filter_map(agreement).collect();
        found.iter().find(|found| **found == NameMatch::Same).or(found.first()).copied()
    }
}
