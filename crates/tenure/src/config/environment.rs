//! The environment's own layer: `TENURE_STORE`, `TENURE_ELECTIONS__NIGHTLY__TTL`, …
//!
//! A name is the path of the setting in capitals, its parts joined by two underscores. What people
//! name themselves cannot always be written so: `TENURE_ELECTIONS__NIGHTLY_REPORT__TTL` means the
//! election `nightly-report` when a lower layer knows one, else `nightly_report`.

use super::layers::{Leaves, Lost, lay_text, locate, unknown};
use super::origin::{Origin, Path};
use super::problem::{Fault, Problems};
use super::schema::{ROOT, each_leaf, moved_hook};
use super::variables::{Environment, value_of};
use tenure_backend::nearest;

/// What every variable of ours begins with.
pub(super) const PREFIX: &str = "TENURE_";
/// Names the configuration file.
pub(super) const FILE_VARIABLE: &str = "TENURE_CONFIG";
/// Names the profile.
pub(super) const PROFILE_VARIABLE: &str = "TENURE_PROFILE";

/// Variables of ours that are not settings. The others are what a program that runs only while it
/// leads is told by its wrapper, and a hook by the sidecar; both may well use this library.
pub(super) const NOT_SETTINGS: [&str; 8] = [
    FILE_VARIABLE,
    PROFILE_VARIABLE,
    "TENURE_NAME",
    "TENURE_ID",
    "TENURE_TOKEN",
    "TENURE_TTL_MS",
    "TENURE_EVENT",
    "TENURE_REASON",
];

/// Variables that say where the store is and who asks. Of these an empty one is no absent one: it
/// is a secret that was not filled in, and without it a host would be alone, or at another store.
const NAME_THE_STORE: [&str; 10] = [
    "STORE",
    "STORE__URL",
    "STORE__URL_FILE",
    "STORE__HOST",
    "STORE__PORT",
    "STORE__SOCKET",
    "STORE__USER",
    "STORE__PASSWORD",
    "STORE__PASSWORD_FILE",
    "STORE__DATABASE",
];

/// Lays the environment over what is there.
pub(super) fn lay(environment: &Environment, leaves: &mut Leaves, problems: &mut Problems) {
    let known = leaves.clone();
    for variable in environment.keys() {
        let Some(name) = variable.strip_prefix(PREFIX) else { continue };
        let text = match value_of(environment, variable) {
            None if NAME_THE_STORE.contains(&name) => "",
            None => continue,
            Some(text) => text,
        };
        if NOT_SETTINGS.contains(&variable.as_str()) || is_service_link(name) {
            continue;
        }
        let names: Vec<String> = name.split("__").map(str::to_owned).collect();
        let origin = Origin::Variable(variable.clone());
        let chosen = |path: &Path, name: &str| chosen_name(&known, path, name);
        let located = locate(&names, &|row, name| variable_form(row) == name, &chosen);
        let laid = match located {
            Ok((path, kind)) => lay_text(leaves, path, kind, text, origin),
            Err(Lost { reason: Some(reason), .. }) => {
                let key = variable.clone();
                Err(Fault::UnknownKey { key, origin, suggestion: None, hint: reason }.into())
            }
            Err(lost) => {
                let advice = "; parts of a name are joined by two underscores";
                Err(unknown(variable.clone(), origin, suggested(&names, &lost), advice))
            }
        };
        problems.take(laid);
    }
}

/// Kubernetes tells every container about each service of its namespace: a service `tenure-store`
/// brings TENURE_STORE_SERVICE_HOST, TENURE_STORE_PORT_6379_TCP and more. Nobody set those.
fn is_service_link(name: &str) -> bool {
    let parts: Vec<&str> = name.split('_').collect();
    let of_service = |pair: &[&str]| pair == ["SERVICE", "HOST"] || pair == ["SERVICE", "PORT"];
    let of_port = match parts.iter().position(|part| *part == "PORT") {
        None => false,
        Some(at) => match &parts[at + 1..] {
            [] => true,
            [number, protocol, ..] => {
                number.parse::<u16>().is_ok() && ["TCP", "UDP", "SCTP"].contains(protocol)
            }
            [_] => false,
        },
    };
    !name.contains("__") && (of_port || parts.windows(2).any(of_service))
}

/// The name that a lower layer knows in this form, else the form in small letters.
fn chosen_name(known: &Leaves, path: &Path, form: &str) -> Result<String, String> {
    let names = known.names_below(path);
    let mut matching = names.iter().filter(|name| variable_form(name) == form);
    match (matching.next(), matching.next()) {
        (None, _) => Ok(form.to_ascii_lowercase()),
        (Some(name), None) => Ok(name.clone()),
        (Some(one), Some(other)) => {
            Err(format!("; it may mean {one:?} or {other:?}: set it in the file instead"))
        }
    }
}

/// How a name is written in a variable: capitals, and an underscore for what cannot stand there.
pub(super) fn variable_form(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(letter).collect()
}

fn suggested(names: &[String], lost: &Lost) -> Option<String> {
    if let Some(hook) = moved_hook(&lost.path, &lost.name.to_ascii_lowercase()) {
        return Some(format!("{PREFIX}DEFAULTS__HOOKS__{}", variable_form(hook)));
    }
    if let Some(whole) = with_two_underscores(names) {
        return Some(whole);
    }
    if let Some(near) = nearest(&lost.name, lost.rows.iter().map(|row| row.name)) {
        let mut names = names.to_vec();
        names[lost.index] = variable_form(near);
        return Some(format!("{PREFIX}{}", names.join("__")));
    }
    let mut all = Vec::new();
    let mut same = None;
    let given = names.join("__");
    each_leaf(ROOT, &[], &mut |parts, row, _| {
        let forms: Vec<String> = parts.iter().map(|part| variable_form(part)).collect();
        let variable = format!("{PREFIX}{}", forms.join("__"));
        if variable_form(row.name) == given && same.is_none() {
            same = Some(variable.clone());
        }
        all.push(variable);
    });
    let near = || nearest(&format!("{PREFIX}{given}"), all.iter().map(String::as_str));
    same.clone().or_else(|| near().map(str::to_owned))
}

/// The variable that only lacks an underscore: `TENURE_DEFAULTS_TTL`.
fn with_two_underscores(names: &[String]) -> Option<String> {
    let given = names.join("_");
    let mut found = None;
    each_leaf(ROOT, &[], &mut |parts, _, _| {
        let forms: Vec<String> = parts.iter().map(|part| variable_form(part)).collect();
        if forms.join("_") == given {
            found = Some(format!("{PREFIX}{}", forms.join("__")));
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_underscore_is_noticed() {
        let meant = |name: &str| {
            with_two_underscores(&name.split("__").map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(meant("DEFAULTS_TTL").unwrap(), "TENURE_DEFAULTS__TTL");
        assert_eq!(meant("STORE_PASSWORD_FILE").unwrap(), "TENURE_STORE__PASSWORD_FILE");
        assert_eq!(meant("DEFAULTS_TTTL"), None);
    }

    #[test]
    fn what_kubernetes_says_of_its_services_is_not_for_us() {
        let links = [
            "SERVICE_HOST",
            "SERVICE_PORT",
            "PORT",
            "STORE_SERVICE_HOST",
            "STORE_SERVICE_PORT_RESP",
            "STORE_PORT",
            "PORT_6379_TCP",
            "STORE_PORT_6379_TCP_ADDR",
        ];
        for name in links {
            assert!(is_service_link(name), "{name}");
        }
        for name in
            ["STORE", "STORE__PORT", "STORE__HOST", "PORTS", "STORE_PORT_X", "DEFAULTS__TTL"]
        {
            assert!(!is_service_link(name), "{name}");
        }
    }
}
