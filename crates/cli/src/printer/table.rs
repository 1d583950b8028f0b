use super::visible;
use unicode_width::UnicodeWidthStr as _;

/// Blanks between columns.
const GAP: usize = 2;

/// Columns of text, as wide as their widest cell.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with its heading.
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    /// Adds a row; control characters in it are made visible.
    pub(crate) fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(|cell| visible(cell.as_ref()).into_owned()).collect());
    }

    /// The lines, without blanks at their ends.
    pub(crate) fn render(&self) -> String {
        align(&self.rows)
    }
}

/// Names and values, one pair a line.
pub(crate) fn fields<N: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (N, V)>) -> String {
    let rows: Vec<_> = pairs
        .into_iter()
        .map(|(name, value)| vec![format!("{}:", name.as_ref()), visible(value.as_ref()).into_owned()])
        .collect();
    align(&rows)
}

fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width_of =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell: &String| cell.width()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width_of(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width + GAP - cell.width()));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let mut table = Table::new(&["ID", "NAME"]);
        table.row(["s1", "漢字"]);
        table.row(["s234567", "a\tb"]);
        assert_eq!(table.render(), "ID       NAME\ns1       漢字\ns234567  a\\tb\n");
    }

    #[test]
    fn fields_stand_below_each_other() {
        assert_eq!(fields([("id", "s1"), ("status", "RUNNING")]), "id:      s1\nstatus:  RUNNING\n");
    }
}
