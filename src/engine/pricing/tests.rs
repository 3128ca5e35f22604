use serde_json::json;

use super::*;

const NOW: i64 = 1_796_000_000_000;

fn dollars(text: &str) -> Money {
    Money::parse(text).unwrap()
}

/// m-small of the requirements.
fn small() -> Rates {
    OperatorPrice {
        input: dollars("1"),
        cached_input: Some(dollars("0.10")),
        output: dollars("4"),
        input_audio: Some(dollars("10")),
        output_audio: Some(dollars("20")),
        ..OperatorPrice::default()
    }
    .into()
}

#[test]
fn cached_and_audio_tokens_are_priced_once() {
    let usage = Usage {
        input: 20_000,
        cached_input: 16_000,
        output: 1_000,
        ..Usage::default()
    };
    assert_eq!(small().cost(&usage, None), dollars("0.0096"));
    let spoken = Usage {
        input: 1_000,
        input_audio: 600,
        output: 200,
        output_audio: 150,
        ..Usage::default()
    };
    assert_eq!(small().cost(&spoken, None), dollars("0.0096"));
}

#[test]
fn without_a_cached_price_cached_tokens_cost_the_plain_price_once() {
    let rates: Rates = OperatorPrice {
        input: dollars("1"),
        output: dollars("4"),
        ..OperatorPrice::default()
    }
    .into();
    let usage = Usage {
        input: 20_000,
        cached_input: 16_000,
        output: 1_000,
        ..Usage::default()
    };
    assert_eq!(rates.cost(&usage, None), dollars("0.024"));
}

#[test]
fn rates_of_sound_count_in_a_bound_only_where_there_can_be_sound() {
    assert_eq!(small().worst(1_000, 1_000, false), dollars("0.005"));
    assert_eq!(small().worst(1_000, 1_000, true), dollars("0.03"));
}

#[test]
fn a_cost_is_rounded_up_once() {
    let rates: Rates = OperatorPrice {
        input: Money::from_nanos(1_500_000),
        output: Money::from_nanos(1),
        ..OperatorPrice::default()
    }
    .into();
    let usage = Usage {
        input: 1,
        output: 1,
        ..Usage::default()
    };
    assert_eq!(rates.cost(&usage, None), Money::from_nanos(2));
}

#[test]
fn the_table_gives_the_published_prices_and_cliffs() {
    let at = PriceBook::Bundled.rates(Some("https://api.openai.com/v1"), "gpt-4o-mini", NOW);
    let usage = Usage {
        input: 1_000_000,
        cached_input: 500_000,
        output: 1_000_000,
        ..Usage::default()
    };
    assert_eq!(at.unwrap().rates.cost(&usage, None), dollars("0.7125"));
    assert!(
        PriceBook::Bundled
            .rates(None, "no-such-model-anywhere", NOW)
            .is_none()
    );
    assert!(
        PriceBook::Bundled
            .rates(None, "ft:gpt-4o-mini:org::x", NOW)
            .is_none()
    );
}

#[test]
fn costs_equal_those_of_the_price_table_to_a_nano_dollar_on_both_sides_of_a_cliff() {
    for model in [
        "gpt-4o",
        "gpt-4.1",
        "gpt-5",
        "o3",
        "gemini-2.5-pro",
        "claude-sonnet-4-5",
    ] {
        let rates = PriceBook::Bundled.rates(None, model, NOW).unwrap().rates;
        for (input, cached, output) in [
            (1_000, 300, 10),
            (199_999, 0, 7),
            (200_001, 100_000, 2_000),
            (900_000, 1, 1),
        ] {
            let mut table = genai_prices::Usage::default();
            table.insert(genai_prices::UsageKey::INPUT_TOKENS, f64::from(input));
            table.insert(genai_prices::UsageKey::CACHE_READ_TOKENS, f64::from(cached));
            table.insert(genai_prices::UsageKey::OUTPUT_TOKENS, f64::from(output));
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(NOW as u64);
            let request = genai_prices::PriceRequest::new(model, &table).with_timestamp(at);
            let theirs = genai_prices::calculate(&request).unwrap().total_price * 1e9;
            let usage = Usage {
                input: input as u64,
                cached_input: cached as u64,
                output: output as u64,
                ..Usage::default()
            };
            let ours = rates.cost(&usage, None);
            assert!(
                (ours.nanos() as f64 - theirs).abs() <= 1.0,
                "{model}: {ours} {theirs}"
            );
            assert!(rates.worst(usage.input, usage.output, false) >= ours);
        }
    }
}

#[test]
fn usage_is_read_in_the_providers_forms() {
    for (object, input, cached, output) in [
        (
            json!({"prompt_tokens": 7, "completion_tokens": 12, "total_tokens": 402}),
            7,
            0,
            395,
        ),
        (
            json!({"prompt_tokens": 20.0, "completion_tokens": 5}),
            20,
            0,
            5,
        ),
        (
            json!({"prompt_tokens": 563, "completion_tokens": 116, "prompt_cache_hit_tokens": 512}),
            563,
            512,
            116,
        ),
        (
            json!({"input_tokens": 3, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 2}}),
            3,
            2,
            4,
        ),
    ] {
        let usage = UsageReading::of(&object).unwrap().usage;
        assert_eq!(
            (usage.input, usage.cached_input, usage.output),
            (input, cached, output)
        );
    }
}

#[test]
fn nonsense_is_no_usage_and_contradictions_are_flagged() {
    for object in [
        json!({"prompt_tokens": -4, "completion_tokens": 1}),
        json!(null),
        json!({}),
    ] {
        assert_eq!(UsageReading::of(&object), None, "{object}");
    }
    let odd = json!({"prompt_tokens": 1, "completion_tokens": 10,
        "completion_tokens_details": {"reasoning_tokens": 11}});
    assert!(UsageReading::of(&odd).unwrap().suspect);
}
