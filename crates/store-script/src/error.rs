//! Why a script, library or function was refused before it ran.
//!
//! Each text is the one Redis 7.0 answers with, code included, ready to be sent as an error reply.

/// A script that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The text is no Lua.
    #[error("ERR Error compiling script (new function): {0}")]
    Compile(String),
    /// The first line starts with `#!` and says nothing.
    #[error("ERR Invalid script shebang")]
    ShebangInvalid,
    /// A quote of the first line stays open.
    #[error("ERR Invalid engine in script shebang")]
    ShebangQuote,
    /// Scripts are written in Lua.
    #[error("ERR Unexpected engine in script shebang: {0}")]
    ShebangEngine(String),
    /// A word of the first line that means nothing.
    #[error("ERR Unknown lua shebang option: {0}")]
    ShebangOption(String),
    /// A flag that scripts do not have.
    #[error("ERR Unexpected flag in script shebang: {0}")]
    ShebangFlag(String),
    /// Longer than [`Limits::source_max`](crate::Limits::source_max).
    #[error("ERR Script is longer than the limit of {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// The scripts of SCRIPT LOAD fill
    /// [`Limits::loaded_bytes_max`](crate::Limits::loaded_bytes_max).
    #[error("ERR The script cache is full: its limit is {limit} bytes, use SCRIPT FLUSH")]
    CacheFull {
        /// The limit.
        limit: usize,
    },
}

/// A library that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// It does not start with `#!`.
    #[error("ERR Missing library metadata")]
    MetadataMissing,
    /// Its first line is broken.
    #[error("ERR Invalid library metadata")]
    MetadataInvalid,
    /// A word of the first line that means nothing.
    #[error("ERR Invalid metadata value given: {0}")]
    MetadataValue(String),
    /// Two names.
    #[error("ERR Invalid metadata value, name argument was given multiple times")]
    NameTwice,
    /// No name.
    #[error("ERR Library name was not given")]
    NameMissing,
    /// A name of other signs than letters, digits and underscores.
    #[error(
        "ERR Library names can only contain letters, numbers, or underscores(_) and must be at \
         least one character long"
    )]
    NameInvalid,
    /// Libraries are written in Lua.
    #[error("ERR Engine '{0}' not found")]
    EngineUnknown(String),
    /// There is one of that name, and replacing was not asked for.
    #[error("ERR Library '{0}' already exists")]
    Exists(String),
    /// Another library has a function of that name.
    #[error("ERR Function {0} already exists")]
    FunctionExists(String),
    /// The text is no Lua.
    #[error("ERR Error compiling function: {0}")]
    Compile(String),
    /// Its first run, in which functions are registered, failed.
    #[error("ERR Error registering functions: {0}")]
    Register(String),
    /// Its first run registered nothing.
    #[error("ERR No functions registered")]
    Empty,
    /// Longer than [`Limits::source_max`](crate::Limits::source_max).
    #[error("ERR Library is longer than the limit of {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// All libraries together pass one of their limits.
    #[error("ERR Too many libraries or functions, use FUNCTION DELETE or FUNCTION FLUSH")]
    Full,
}
