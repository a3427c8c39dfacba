//! Waiting for something instead of sleeping and hoping.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// Asks until the probe has an answer; fails, naming what it waited for, when time is up.
pub fn wait_until<T>(
    what: &str,
    timeout: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + timeout;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(answer) = probe()? {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            bail!("waited {timeout:?} in vain for {what}");
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_comes_as_soon_as_there_is_one() {
        let mut asked = 0;
        let answer = wait_until("three", Duration::from_secs(5), || {
            asked += 1;
            Ok((asked == 3).then_some(asked))
        });
        assert_eq!(answer.unwrap(), 3);
    }

    #[test]
    fn giving_up_names_what_was_waited_for() {
        let error = wait_until::<()>("godot", Duration::from_millis(5), || Ok(None)).unwrap_err();
        assert!(error.to_string().ends_with("in vain for godot"), "{error}");
    }
}
