//! When a limit begins to count anew.

use crate::engine::policy::Calendar;

/// The span over which an account adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// Any 60 seconds, sliding.
    Minute,
    /// A day of the calendar, which may have 23 or 25 hours.
    Day,
    Month,
    /// Never begins anew.
    Total,
}

pub const MINUTE_MS: i64 = 60_000;
/// From `start_ms` (inclusive) to `end_ms` (exclusive).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub start_ms: i64,
    pub end_ms: Option<i64>,
}

const FOREVER: Period = Period {
    start_ms: 0,
    end_ms: None,
};

/// The bucket of an admission, named by its END: an entry never counts as earlier than it was.
pub fn bucket(now_ms: i64, width_ms: i64) -> i64 {
    let past = now_ms.rem_euclid(width_ms);
    if past == 0 {
        now_ms
    } else {
        now_ms - past + width_ms
    }
}

/// Buckets above this still count at `now_ms`.
pub fn live_after(now_ms: i64) -> i64 {
    now_ms - MINUTE_MS
}

impl Window {
    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Day => "day",
            Self::Month => "month",
            Self::Total => "total",
        }
    }

    /// The period that holds `now_ms`. Sliding and endless windows have one for ever.
    pub fn period(self, now_ms: i64, calendar: &Calendar) -> Period {
        match self {
            Self::Minute | Self::Total => FOREVER,
            Self::Day => calendar_period(now_ms, calendar, jiff::Span::new().days(1), false),
            Self::Month => calendar_period(now_ms, calendar, jiff::Span::new().months(1), true),
        }
    }
}

impl Period {
    fn between(start: &jiff::ZonedDateTime, end: &jiff::ZonedDateTime) -> Self {
        Self {
            start_ms: start.timestamp().as_millisecond(),
            end_ms: Some(end.timestamp().as_millisecond()),
        }
    }
}

/// The civil day (or month) begins at the reset hour of its first day; a civil time that does
/// not exist on a day of 23 hours is the first instant after the gap.
fn calendar_period(now_ms: i64, calendar: &Calendar, step: jiff::Span, month: bool) -> Period {
    let found = || -> Result<Period, jiff::Error> {
        let now =
            jiff::Timestamp::from_millisecond(now_ms)?.to_zoned_datetime(calendar.zone.clone());
        let first = |date: jiff::civil::Date| if month { date.first_of_month() } else { date };
        let begin = |date: jiff::civil::Date| {
            date.to_datetime(calendar.reset_at)
                .to_zoned_datetime(calendar.zone.clone())
        };
        let mut date = first(now.date());
        if begin(date)? > now {
            date = first(date.checked_sub(step)?);
        }
        Ok(Period::between(
            &begin(date)?,
            &begin(first(date.checked_add(step)?))?,
        ))
    };
    found().unwrap_or(FOREVER)
}
