//! The specification of the election names what the scripts use, and is cited by paragraphs that
//! it has.

use super::tree::{File, Tree};
use super::{Check, Finding};

const PAGE: &str = "docs/protocol.md";

pub(super) const NAMES: Check = Check {
    name: "protocol names",
    run: |tree| tree.get(PAGE).map_or(Vec::new(), |page| unnamed(tree, page)),
};

pub(super) const CITATIONS: Check = Check {
    name: "protocol citations",
    run: |tree| {
        let page = tree.get(PAGE);
        let has = |paragraph: &str| {
            page.is_some_and(|page| page.text.contains(&format!("\n**{paragraph}** ")))
        };
        let is_dead = |paragraph: &String| !has(paragraph);
        let dead_in = |file: &File| -> Vec<Finding> {
            let citations = file.lines().flat_map(|(number, line)| {
                cited(file, line).into_iter().filter(is_dead).map(move |cited| (number, cited))
            });
            let told = citations.map(|(number, cited)| {
                let what = format!("{PAGE} has no paragraph {cited}");
                Finding::new(&file.path, number, what, "cite the one that is meant")
            });
            told.collect()
        };
        tree.files().filter(|file| !is_example(file)).flat_map(dead_in).collect()
    },
};

/// This rule and what is planted for it speak of paragraphs that nobody has.
fn is_example(file: &File) -> bool {
    file.path.starts_with("xtask/")
}

/// The paragraphs that a line cites: `protocol.md §3.2`, and on the page itself `§3.2` alone.
fn cited(file: &File, line: &str) -> Vec<String> {
    let mark = if file.path == PAGE { "§" } else { "protocol.md §" };
    let number = |text: &str| -> String {
        let number = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.');
        number.collect::<String>().trim_end_matches('.').to_owned()
    };
    let numbers = line.split(mark).skip(1).map(number);
    // A number without a point is a whole section.
    numbers.filter(|number| number.contains('.')).collect()
}

/// Scripts and fields of the side record that have no row on the page.
fn unnamed(tree: &Tree, page: &File) -> Vec<Finding> {
    let has_row = |name: &str| page.text.contains(&format!("\n| `{name}` |"));
    let scripts = tree.with_extension("lua").filter_map(|file| {
        let name = file.path.rsplit_once("/scripts/")?.1.strip_suffix(".lua")?;
        Some((file, 1, name))
    });
    let preludes = tree.files().filter(|file| file.path.ends_with("/scripts/prelude.lua"));
    let fields = preludes.flat_map(|file| {
        record_fields(file).into_iter().map(move |(line, name)| (file, line, name))
    });
    scripts
        .chain(fields)
        .filter(|(.., name)| !has_row(name))
        .map(|(file, line, name)| {
            let what = format!("{PAGE} has no row for `{name}`");
            Finding::new(&file.path, line, what, "say there what it means and who writes it")
        })
        .collect()
}

/// The fields that the prelude reads: the texts between `local names = {` and its brace.
fn record_fields(prelude: &File) -> Vec<(usize, &str)> {
    let lines = prelude.lines().skip_while(|(_, line)| !line.contains("local names = {"));
    let lines = lines.skip(1).take_while(|(_, line)| line.trim() != "}");
    lines
        .flat_map(|(number, line)| {
            line.split('\'').skip(1).step_by(2).map(move |name| (number, name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository;

    #[test]
    fn the_fields_of_the_real_prelude_are_found() {
        let tree = Tree::read(repository::root()).unwrap();
        let prelude = tree.files().find(|file| file.path.ends_with("/scripts/prelude.lua"));
        let fields = record_fields(prelude.unwrap());
        let has = |name: &str| fields.iter().any(|(_, field)| *field == name);
        assert!(has("v") && has("grant") && has("refused"), "{fields:?}");
        assert!(fields.len() > 30, "{fields:?}");
    }
}
