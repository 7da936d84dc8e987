//! Widths of columns: all at their widest cell, or as many as fit the screen.

/// Blanks between two columns.
const GAP: usize = 2;
/// Blanks before the first column.
const MARGIN: usize = 1;
/// Least width of a name other than a call-site.
const LEAST_NAME: usize = 12;
/// Least width of a call-site where everything else is dropped.
const LEAST_SITE: usize = 8;

/// Column as the layout sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Widest cell.
    pub(crate) width: usize,
    /// Width that call-sites keep while other columns are dropped for them; `None`: the column holds no call-sites.
    pub(crate) site: Option<usize>,
    /// Width of the parts of call-sites that are cut last.
    pub(crate) kept: usize,
    /// True for names, which may be cut.
    pub(crate) is_name: bool,
    /// No row has a text in it.
    pub(crate) is_empty: bool,
    /// No row has a known value in it.
    pub(crate) is_unknown: bool,
    /// Order of dropping: the greatest first, 0 never.
    pub(crate) drop: u8,
}

impl Need {
    /// Width below which other columns are dropped first.
    fn least(&self) -> usize {
        match self.site {
            Some(kept) => self.width.min(kept),
            None if self.is_name => self.width.min(LEAST_NAME),
            None => self.width,
        }
    }
}

/// Widths of the columns; `None` for a column that is dropped.
///
/// A table wider than `limit` drops columns by their number, then call-sites get the room that is left.
pub(crate) fn fit(needs: &[Need], limit: Option<usize>) -> Vec<Option<usize>> {
    let mut widths: Vec<Option<usize>> = needs.iter().map(|need| Some(need.width)).collect();
    let Some(limit) = limit else { return widths };
    if total(&widths) <= limit {
        return widths;
    }
    widths = needs.iter().map(|need| Some(need.least())).collect();
    while total(&widths) > limit {
        let droppable = (0..needs.len()).filter(|&index| widths[index].is_some() && needs[index].drop > 0);
        let Some(index) = droppable.max_by_key(|&index| needs[index].drop) else { break };
        widths[index] = None;
    }
    shrink_sites(needs, &mut widths, limit);
    grow(needs, &mut widths, limit);
    widths
}

/// Columns of a line, without the blanks at its end.
fn total(widths: &[Option<usize>]) -> usize {
    let shown = widths.iter().flatten().count();
    MARGIN + widths.iter().flatten().sum::<usize>() + GAP * shown.saturating_sub(1)
}

/// Takes from the widest call-sites and names where nothing else can be dropped: first what is not kept.
fn shrink_sites(needs: &[Need], widths: &mut [Option<usize>], limit: usize) {
    for keeps in [true, false] {
        while total(widths) > limit {
            let shrinkable = |index: &usize| {
                let need = &needs[*index];
                let least = if keeps { need.kept.max(LEAST_SITE) } else { LEAST_SITE };
                (need.site.is_some() || need.is_name) && widths[*index].is_some_and(|width| width > least)
            };
            let Some(widest) = (0..needs.len()).filter(shrinkable).max_by_key(|&index| widths[index]) else { break };
            widths[widest] = widths[widest].map(|width| width - 1);
        }
    }
}

/// Gives room that is left to call-sites, then to names, the narrowest first.
fn grow(needs: &[Need], widths: &mut [Option<usize>], limit: usize) {
    for of_sites in [true, false] {
        while total(widths) < limit {
            let growable = |index: &usize| {
                needs[*index].site.is_some() == of_sites && widths[*index].is_some_and(|w| w < needs[*index].width)
            };
            let Some(narrowest) = (0..needs.len()).filter(growable).min_by_key(|&index| widths[index]) else { break };
            widths[narrowest] = widths[narrowest].map(|width| width + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(width: usize, drop: u8) -> Need {
        Need { width, site: None, kept: 0, is_name: false, is_empty: false, is_unknown: false, drop }
    }

    fn site(width: usize, kept: usize) -> Need {
        Need { width, site: Some(kept), kept, is_name: false, is_empty: false, is_unknown: false, drop: 0 }
    }

    #[test]
    fn columns_are_dropped_by_number_and_figures_keep_their_width() {
        let needs = [figure(9, 3), figure(9, 1), figure(9, 2), figure(8, 0), site(60, 26)];
        assert_eq!(fit(&needs, None), [Some(9), Some(9), Some(9), Some(8), Some(60)]);
        assert_eq!(fit(&needs, Some(104)), [Some(9), Some(9), Some(9), Some(8), Some(60)]);
        assert_eq!(fit(&needs, Some(103)), [Some(9), Some(9), Some(9), Some(8), Some(59)]);
        assert_eq!(fit(&needs, Some(66)), [None, Some(9), Some(9), Some(8), Some(33)]);
        assert_eq!(fit(&needs, Some(49)), [None, Some(9), None, Some(8), Some(27)]);
    }

    #[test]
    fn a_name_gives_way_to_the_parts_of_a_call_site_that_are_kept() {
        let name = Need { kept: 4, ..site(60, 24) };
        let widths = fit(&[figure(8, 0), name, site(110, 55)], Some(80));
        assert_eq!(widths, [Some(8), Some(12), Some(55)]);
    }

    #[test]
    fn no_line_is_longer_than_the_limit() {
        for limit in 40..210 {
            for kept in [8, 30, 72] {
                let needs = [figure(20, 2), figure(9, 1), figure(9, 0), site(90, kept), site(12, 12)];
                let widths = fit(&needs, Some(limit));
                assert!(total(&widths) <= limit, "{limit} {kept}: {widths:?}");
                assert!(widths[3].is_some() && widths[4].is_some());
            }
        }
    }
}
