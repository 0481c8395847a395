//! Numbers and names as readers want them.

/// Where there is no number.
pub(super) const NONE: &str = "–";

/// A measured number as a reader wants it: three figures that count, whole numbers as they are.
pub fn show(value: f64) -> String {
    if value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    // What it is rounded to decides how many digits stand behind the point.
    let exponent =
        format!("{value:.2e}").split_once('e').and_then(|(_, e)| e.parse::<i32>().ok()).unwrap_or(0);
    format!("{value:.*}", (2 - exponent).clamp(0, 3) as usize)
}

/// A paper's number as the paper prints it; of one that was computed, four figures.
pub fn show_paper(value: f64) -> String {
    format!("{value:.3e}").parse::<f64>().unwrap_or(value).to_string()
}

/// A ratio: two digits behind the point are enough, unless it is small.
pub fn show_ratio(value: f64) -> String {
    if value == 0.0 || value.abs() >= 0.1 { format!("{value:.2}") } else { show(value) }
}

pub(super) fn ratio_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.into(), show_ratio)
}

pub(super) fn ours_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.into(), show)
}

pub(super) fn paper_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.into(), show_paper)
}

/// A workload as plots name it: an application of MedFS's tables by its letters.
pub(super) fn workload_name(workload: &str) -> String {
    workload.strip_prefix("app-").map_or_else(|| workload.to_owned(), str::to_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_figures_and_papers_are_as_printed() {
        let shown = [0.0, 7.0, -28.81, 6.984, 41.67, 99.97, 9.996, 122.7, 1234.6, 0.0261, 0.1426].map(show);
        assert_eq!(
            shown,
            ["0", "7", "-28.8", "6.98", "41.7", "100", "10.0", "123", "1235", "0.026", "0.143"]
        );
        assert_eq!(
            [0.0, 0.886, -2.64, 0.0261, 25.68].map(show_ratio),
            ["0.00", "0.89", "-2.64", "0.026", "25.68"]
        );
        let papers = [4.9, 11.0, -50.5, 99.97, 122.7, 475.0, 0.17, 54.033_51].map(show_paper);
        assert_eq!(papers, ["4.9", "11", "-50.5", "99.97", "122.7", "475", "0.17", "54.03"]);
    }
}
