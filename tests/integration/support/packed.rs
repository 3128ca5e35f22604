//! Bodies in the codings of HTTP.

use std::io::Write as _;

/// `codings` as in a Content-Encoding header: applied from the first to the last.
pub fn packed(codings: &str, plain: &[u8]) -> Vec<u8> {
    codings
        .split(", ")
        .fold(plain.to_vec(), |body, coding| one(coding, &body))
}

fn one(coding: &str, plain: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::default();
    match coding.to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        "br" => {
            let mut packed = Vec::new();
            let parameters = brotli::enc::BrotliEncoderParams {
                quality: 5,
                ..Default::default()
            };
            brotli::BrotliCompress(&mut &*plain, &mut packed, &parameters).unwrap();
            packed
        }
        "zstd" => zstd::encode_all(plain, 0).unwrap(),
        other => panic!("{other} is no coding"),
    }
}
