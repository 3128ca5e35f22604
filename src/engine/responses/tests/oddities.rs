//! One oddity a test.

use super::*;
