// SPDX-License-Identifier: GPL-3.0-or-later
//! Parameters of a sliding-window code.

use std::fmt;
use std::str::FromStr;

/// S(k,z) of Petrou et al., ASMS/SPSC 2022, section II-C: after every `k` source packets one repair
/// packet over the last `z`.
///
/// `1 <= k <= z <= 1024`; the source packets of a new stream are covered from the first one on, so
/// the window grows to `z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    step: u16,
    window: u16,
}

/// Why a text or two numbers are not a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// The text is not of the form.
    #[error("is not K,Z with two whole numbers")]
    Form,
    /// The numbers are outside the bounds.
    #[error("needs 1 <= K <= Z <= 1024")]
    Range,
}

impl Code {
    /// Largest `z`. RFC 8681 section 4.1.3 allows 4,095; this one bounds the decoder's memory.
    pub const MAX_WINDOW: u16 = 1024;

    /// S(`step`,`window`).
    ///
    /// # Errors
    /// A number is outside its bounds.
    pub const fn new(step: u16, window: u16) -> Result<Self, CodeError> {
        if step == 0 || step > window || window > Self::MAX_WINDOW {
            return Err(CodeError::Range);
        }
        Ok(Self { step, window })
    }

    /// A code of the ladder of adaptive redundancy.
    pub(crate) const fn on_ladder(step: u16) -> Self {
        Self { step, window: 100 }
    }

    /// Source packets from one repair packet to the next, `k`.
    #[must_use]
    pub const fn step(self) -> u16 {
        self.step
    }

    /// Source packets that a repair packet covers, `z`.
    #[must_use]
    pub const fn window(self) -> u16 {
        self.window
    }

    /// Share of repair packets among all packets, 0 to 0.5.
    #[must_use]
    pub fn redundancy(self) -> f64 {
        1.0 / (1.0 + f64::from(self.step))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.step, self.window)
    }
}

impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let (step, window) = text.split_once(',').ok_or(CodeError::Form)?;
        let number = |text: &str| text.parse::<u16>().map_err(|_| CodeError::Form);
        Self::new(number(step)?, number(window)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_it_is_written_and_others_are_refused() {
        for text in ["10,100", "5,100", "2,100", "1,1", "1024,1024"] {
            assert_eq!(text.parse::<Code>().unwrap().to_string(), text);
        }
        for text in ["0,10", "11,10", "1,1025"] {
            assert_eq!(text.parse::<Code>(), Err(CodeError::Range), "{text}");
        }
        for text in ["", "10", "10,", ",5", "-1,5", "1,2,3", "a,b", "1, 2"] {
            assert_eq!(text.parse::<Code>(), Err(CodeError::Form), "{text}");
        }
    }

    #[test]
    fn redundancy_is_as_in_the_paper() {
        // Petrou et al., section III-A.
        for (step, percent) in [(10, 9.09), (5, 16.67), (2, 33.33), (20, 4.76), (50, 1.96)] {
            let code = Code::new(step, 100).unwrap();
            assert!((code.redundancy() * 100.0 - percent).abs() < 0.005);
        }
    }
}
