//! One loading: the files it looks at, and what it finds to say about them.

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
};

use toml::de::DeTable;

use super::{
    Config, ConfigError, Problem,
    reader::{Place, Table, read_to_end},
    text::position,
};

/// Collects while the files are read.
pub(super) struct Loading<'e> {
    /// The process's environment, handed in.
    pub environment: &'e dyn Fn(&str) -> Option<String>,
    mistakes: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
    /// In the order they were looked at, found or not.
    sources: RefCell<Vec<PathBuf>>,
}

/// A TOML file in memory.
pub(super) struct Document<'a> {
    pub loading: &'a Loading<'a>,
    pub path: PathBuf,
    text: String,
}

impl<'e> Loading<'e> {
    pub fn new(environment: &'e dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            environment,
            mistakes: RefCell::default(),
            warnings: RefCell::default(),
            sources: RefCell::default(),
        }
    }

    /// A mistake that belongs to a file as a whole.
    pub fn mistake(&self, file: &Path, message: String) {
        let path = String::new();
        let problem = Problem {
            file: file.to_owned(),
            position: None,
            path,
            message,
        };
        self.mistakes.borrow_mut().push(problem);
    }

    /// Remembers a file (or a directory) whose change may change the configuration.
    pub fn source(&self, path: &Path) {
        let mut sources = self.sources.borrow_mut();
        if !sources.iter().any(|known| known == path) {
            sources.push(path.to_owned());
        }
    }

    /// What was read, unless there was a mistake.
    pub fn checked<T>(self, read: Option<T>) -> Result<T, ConfigError> {
        let problems = self.mistakes.into_inner();
        let sources = self.sources.into_inner();
        match read {
            Some(read) if problems.is_empty() => Ok(read),
            _ => Err(ConfigError { problems, sources }),
        }
    }

    /// The configuration, unless there was a mistake.
    pub fn finish(self, config: Option<Config>) -> Result<Config, ConfigError> {
        let sources = self.sources.into_inner();
        let in_order = |problems: RefCell<Vec<Problem>>| {
            let mut problems = problems.into_inner();
            let file = |problem: &Problem| sources.iter().position(|path| *path == problem.file);
            problems.sort_by_key(|problem| (file(problem), problem.position));
            problems
        };
        let (problems, warnings) = (in_order(self.mistakes), in_order(self.warnings));
        match config {
            Some(config) if problems.is_empty() => Ok(Config {
                warnings,
                sources,
                ..config
            }),
            _ => Err(ConfigError { problems, sources }),
        }
    }
}

impl<'a> Document<'a> {
    /// `None` is a mistake that has been told.
    pub fn open(loading: &'a Loading<'a>, path: &Path) -> Option<Self> {
        loading.source(path);
        let told = |message| loading.mistake(path, message);
        let bytes = fs::read(path)
            .map_err(|error| told(cannot_read(&error)))
            .ok()?;
        let text = String::from_utf8(bytes)
            .map_err(|_| told("is not UTF-8 text".into()))
            .ok()?;
        Some(Self {
            loading,
            path: path.to_owned(),
            text,
        })
    }

    /// Reads the whole file. With broken syntax nothing else is said about it: `None`.
    pub fn read<T>(&self, read: impl FnOnce(&mut Table<'_>) -> T) -> Option<T> {
        let (root, mut errors) = DeTable::parse_recoverable(&self.text);
        errors.sort_by_key(|error| error.span().map(|span| span.start));
        for error in errors.iter().take(SYNTAX_ERRORS_SHOWN) {
            // Not the error's own rendering: it would repeat the line, and secrets on it.
            let offset = error.span().map(|span| span.start);
            self.mistake(offset, "", error.message().to_owned());
        }
        errors
            .is_empty()
            .then(|| read_to_end(Place::whole(self), Some(root.get_ref()), read))
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// A path as written in this file: relative ones stand relative to it.
    pub fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    pub fn mistake(&self, offset: Option<usize>, path: &str, message: String) {
        self.loading
            .mistakes
            .borrow_mut()
            .push(self.problem(offset, path, message));
    }

    pub fn warning(&self, offset: Option<usize>, path: &str, message: String) {
        self.loading
            .warnings
            .borrow_mut()
            .push(self.problem(offset, path, message));
    }

    fn problem(&self, offset: Option<usize>, path: &str, message: String) -> Problem {
        let position = offset.map(|offset| position(&self.text, offset));
        Problem {
            file: self.path.clone(),
            position,
            path: path.to_owned(),
            message,
        }
    }
}

pub(super) fn cannot_read(error: &std::io::Error) -> String {
    format!("cannot be read: {error}")
}

/// One open bracket makes an error of every line after it; the first ones tell.
const SYNTAX_ERRORS_SHOWN: usize = 5;
