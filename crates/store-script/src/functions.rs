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
    /// The place of each library, by its name.
    by_name: BTreeMap<String, usize>,
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
        self.by_name.contains_key(name)
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
        let old = self.by_name.get(&new.name).copied();
        for function in &new.functions {
            let other = self.by_function.get(&function.name.to_ascii_lowercase());
            if other.is_some_and(|(at, _)| Some(*at) != old) {
                return Err(LibraryError::FunctionExists(function.name.clone()));
            }
        }
        let (mut bytes, mut count) = (self.bytes, self.by_function.len());
        if let Some(old) = old.map(|at| &self.libraries[at]) {
            bytes -= old.code.len();
            count -= old.functions.len().min(count);
        }
        check_room(bytes + new.code.len(), count + new.functions.len(), limits)
    }

    /// The same for many that fit beside each other, those aside that have one of their names.
    pub(crate) fn check_join(&self, new: &Libraries, limits: &Limits) -> Result<(), LibraryError> {
        let stays = |library: &&Library| !new.contains(&library.name);
        for function in new.libraries.iter().flat_map(|library| &library.functions) {
            let other = self.by_function.get(&function.name.to_ascii_lowercase());
            if other.is_some_and(|(at, _)| stays(&&self.libraries[*at])) {
                return Err(LibraryError::FunctionExists(function.name.clone()));
            }
        }
        let staying = || self.libraries.iter().filter(stays);
        let bytes: usize = staying().map(|library| library.code.len()).sum();
        let count: usize = staying().map(|library| library.functions.len()).sum();
        check_room(bytes + new.bytes, count + new.by_function.len(), limits)
    }

    /// Adds a library that fits, in place of the one of the same name, which is the answer.
    pub(crate) fn replace(&mut self, new: Library) -> Option<Library> {
        let old = self.remove(&new.name);
        self.libraries.push(new);
        self.index(self.libraries.len() - 1);
        old
    }

    /// Adds many that fit, in place of those of the same names, which are the answer.
    pub(crate) fn join(&mut self, new: Libraries) -> Vec<Library> {
        let old = std::mem::take(self);
        let is_replaced = |library: &Library| new.contains(&library.name);
        let (replaced, staying) = old.libraries.into_iter().partition(is_replaced);
        self.libraries = staying;
        self.libraries.extend(new.libraries);
        self.index_all();
        replaced
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Library> {
        let at = *self.by_name.get(name)?;
        let library = self.libraries.remove(at);
        self.index_all();
        Some(library)
    }

    pub(crate) fn take_all(&mut self) -> Vec<Library> {
        std::mem::take(self).libraries
    }

    fn index_all(&mut self) {
        self.by_name.clear();
        self.by_function.clear();
        self.bytes = 0;
        (0..self.libraries.len()).for_each(|at| self.index(at));
    }

    fn index(&mut self, at: usize) {
        let library = &self.libraries[at];
        self.bytes += library.code.len();
        self.by_name.insert(library.name.clone(), at);
        for (index, function) in library.functions.iter().enumerate() {
            self.by_function.insert(function.name.to_ascii_lowercase(), (at, index));
        }
    }
}

fn check_room(bytes: usize, functions: usize, limits: &Limits) -> Result<(), LibraryError> {
    match bytes > limits.libraries_bytes_max || functions > limits.functions_max {
        true => Err(LibraryError::Full),
        false => Ok(()),
    }
}
