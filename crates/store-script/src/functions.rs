//! Libraries and their functions.

use std::collections::BTreeMap;

use crate::context::Registered;
use crate::error::LibraryError;
use crate::flags::Flags;
use crate::limits::Limits;

/// A library, as FUNCTION LIST shows it.
#[derive(Debug)]
pub struct Library {
    pub(crate) name: String,
    pub(crate) code: Vec<u8>,
    pub(crate) functions: Vec<Registered>,
}

impl Library {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its whole text, first line included: what FUNCTION DUMP saves.
    pub fn code(&self) -> &[u8] {
        &self.code
    }

    /// Its functions, in the order they were registered.
    pub fn functions(&self) -> impl Iterator<Item = FunctionInfo<'_>> {
        self.functions.iter().map(info)
    }
}

/// A function, as FUNCTION LIST shows it.
#[derive(Clone, Copy, Debug)]
pub struct FunctionInfo<'a> {
    /// Its name, by which FCALL calls it.
    pub name: &'a str,
    /// What its author says about it.
    pub description: Option<&'a str>,
    /// What it promises.
    pub flags: Flags,
}

fn info(registered: &Registered) -> FunctionInfo<'_> {
    FunctionInfo {
        name: &registered.name,
        description: registered.description.as_deref(),
        flags: registered.flags,
    }
}

/// All libraries.
#[derive(Default)]
pub(crate) struct Libraries {
    /// In the order of loading.
    libraries: Vec<Library>,
    /// The library and the place in it of each function, by its name in lower case: FCALL takes
    /// any case.
    by_function: BTreeMap<String, (usize, usize)>,
    bytes: usize,
}

impl Libraries {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Library> {
        self.libraries.iter()
    }

    pub(crate) fn function_count(&self) -> usize {
        self.by_function.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.libraries.iter().any(|library| library.name == name)
    }

    pub(crate) fn registered(&self, name: &str) -> Option<&Registered> {
        let (library, function) = *self.by_function.get(&name.to_ascii_lowercase())?;
        self.libraries.get(library)?.functions.get(function)
    }

    pub(crate) fn info(&self, name: &str) -> Option<FunctionInfo<'_>> {
        self.registered(name).map(info)
    }

    /// Whether these functions and bytes fit beside what is there, the library of the same name
    /// aside.
    pub(crate) fn check_fit(&self, new: &Library, limits: &Limits) -> Result<(), LibraryError> {
        let others = || self.libraries.iter().filter(|library| library.name != new.name);
        for function in &new.functions {
            if others()
                .flat_map(|library| &library.functions)
                .any(|other| other.name.eq_ignore_ascii_case(&function.name))
            {
                return Err(LibraryError::FunctionExists(function.name.clone()));
            }
        }
        let bytes: usize = others().map(|library| library.code.len()).sum();
        let count: usize = others().map(|library| library.functions.len()).sum();
        if bytes + new.code.len() > limits.libraries_bytes_max
            || count + new.functions.len() > limits.functions_max
        {
            return Err(LibraryError::Full);
        }
        Ok(())
    }

    /// Adds a library that fits, in place of the one of the same name, which is the answer.
    pub(crate) fn replace(&mut self, new: Library) -> Option<Library> {
        let old = self.remove(&new.name);
        self.libraries.push(new);
        self.index();
        old
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Library> {
        let at = self.libraries.iter().position(|library| library.name == name)?;
        let library = self.libraries.remove(at);
        self.index();
        Some(library)
    }

    pub(crate) fn take_all(&mut self) -> Vec<Library> {
        std::mem::take(self).libraries
    }

    fn index(&mut self) {
        self.bytes = self.libraries.iter().map(|library| library.code.len()).sum();
        self.by_function = self
            .libraries
            .iter()
            .enumerate()
            .flat_map(|(at, library)| {
                let place = move |(index, function): (usize, &Registered)| {
                    (function.name.to_ascii_lowercase(), (at, index))
                };
                library.functions.iter().enumerate().map(place)
            })
            .collect();
    }
}
