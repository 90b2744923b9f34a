//! Paths in the commands that messages suggest.

use std::path::Path;

/// A path as one word of a shell command: in single quotes unless every character is harmless.
///
/// ```
/// use lsoftmax_data::shell_word;
/// assert_eq!(shell_word("runs/mnist-m4".as_ref()), "runs/mnist-m4");
/// assert_eq!(shell_word("my runs/it's".as_ref()), r"'my runs/it'\''s'");
/// ```
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_harmless = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    if !text.is_empty() && text.chars().all(is_harmless) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
