// SPDX-License-Identifier: GPL-3.0-or-later
//! What a sender adds to its packets.

use std::fmt;
use std::str::FromStr;

use crate::{Code, CodeError, LADDER};

/// No code, one, or the one of [`LADDER`] that the reported losses need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// Packets pass as they are.
    #[default]
    None,
    /// The same code all the time.
    Fixed(Code),
    /// The sender takes reports of losses.
    Adaptive,
}

impl Protection {
    /// Most packets that a repair frame covers; 0: there are none.
    #[must_use]
    pub fn window(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Fixed(code) => code.window(),
            Self::Adaptive => LADDER[0].window(),
        }
    }
}

impl From<Option<Code>> for Protection {
    fn from(code: Option<Code>) -> Self {
        code.map_or(Self::None, Self::Fixed)
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Fixed(code) => code.fmt(f),
            Self::Adaptive => f.write_str("adaptive"),
        }
    }
}

impl FromStr for Protection {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        match text {
            "none" => Ok(Self::None),
            "adaptive" => Ok(Self::Adaptive),
            _ => text.parse().map(Self::Fixed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_is_written() {
        for (text, window) in [("none", 0), ("5,40", 40), ("adaptive", 100)] {
            let protection: Protection = text.parse().unwrap();
            assert_eq!(protection.to_string(), text);
            assert_eq!(protection.window(), window);
        }
        assert_eq!("Adaptive".parse::<Protection>(), Err(CodeError::Form));
        assert!(LADDER.iter().all(|it| it.window() == 100));
    }
}
